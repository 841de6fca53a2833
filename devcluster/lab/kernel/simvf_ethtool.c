// SPDX-License-Identifier: GPL-2.0
/* What ethtool and SIOCSHWTSTAMP set on a netdev, kept and answered: rings, coalescing by queue, RSS with contexts, ntuple
 * rules, a tunable, time stamping. No frame is treated otherwise by it. The operations that mlx5e_ethtool_ops and bnxt_ethtool_ops
 * have between them, with the numbers of neither.
 */
#include <linux/bitmap.h>
#include <linux/ethtool.h>
#include <linux/net_tstamp.h>
#include <linux/random.h>
#include "simvf.h"

/* Every queue as the netdev. */
static void sv_ethtool_queues(struct sv_ethtool *e)
{
	int i;

	for (i = 0; i < SV_QUEUES; i++) {
		e->rx_usecs[i] = e->all_rx_usecs;
		e->tx_usecs[i] = e->all_tx_usecs;
		e->adaptive[i] = e->all_adaptive;
	}
}

static int sve_get_coalesce(struct net_device *d, struct ethtool_coalesce *c, struct kernel_ethtool_coalesce *k,
			    struct netlink_ext_ack *x)
{
	struct sv_ethtool *e = sv_ethtool_of(d);

	c->rx_coalesce_usecs = e->all_rx_usecs;
	c->tx_coalesce_usecs = e->all_tx_usecs;
	c->use_adaptive_rx_coalesce = e->all_adaptive;
	return 0;
}

static int sve_set_coalesce(struct net_device *d, struct ethtool_coalesce *c, struct kernel_ethtool_coalesce *k,
			    struct netlink_ext_ack *x)
{
	struct sv_ethtool *e = sv_ethtool_of(d);

	e->all_rx_usecs = c->rx_coalesce_usecs;
	e->all_tx_usecs = c->tx_coalesce_usecs;
	e->all_adaptive = c->use_adaptive_rx_coalesce;
	sv_ethtool_queues(e);
	return 0;
}

static int sve_get_queue(struct net_device *d, u32 q, struct ethtool_coalesce *c)
{
	struct sv_ethtool *e = sv_ethtool_of(d);

	if (q >= SV_QUEUES)	/* mlx5e_ethtool_get_per_queue_coalesce */
		return -EINVAL;
	c->use_adaptive_rx_coalesce = e->adaptive[q];
	/* where the kernel adapts it, what it has come to for this queue (net_dim_get_rx_moderation) */
	c->rx_coalesce_usecs = e->adaptive[q] ? get_random_u32_below(256) : e->rx_usecs[q];
	c->tx_coalesce_usecs = e->tx_usecs[q];
	return 0;
}

static int sve_set_queue(struct net_device *d, u32 q, struct ethtool_coalesce *c)
{
	struct sv_ethtool *e = sv_ethtool_of(d);

	if (q >= SV_QUEUES)
		return -EINVAL;
	e->adaptive[q] = c->use_adaptive_rx_coalesce;
	e->rx_usecs[q] = c->rx_coalesce_usecs;
	e->tx_usecs[q] = c->tx_coalesce_usecs;
	return 0;
}

static void sve_get_rings(struct net_device *d, struct ethtool_ringparam *r, struct kernel_ethtool_ringparam *k,
			  struct netlink_ext_ack *x)
{
	struct sv_ethtool *e = sv_ethtool_of(d);

	r->rx_max_pending = r->tx_max_pending = SV_MAXRING;
	r->rx_pending = e->rx_ring;
	r->tx_pending = e->tx_ring;
}

static int sve_set_rings(struct net_device *d, struct ethtool_ringparam *r, struct kernel_ethtool_ringparam *k,
			 struct netlink_ext_ack *x)
{
	struct sv_ethtool *e = sv_ethtool_of(d);

	e->rx_ring = r->rx_pending;
	e->tx_ring = r->tx_pending;
	return 0;
}

static u32 sve_indir_size(struct net_device *d) { return SV_INDIR; }
static u32 sve_key_size(struct net_device *d) { return SV_KEY; }

static int sve_get_rxfh(struct net_device *d, struct ethtool_rxfh_param *p)
{
	struct sv_ethtool *e = sv_ethtool_of(d);

	p->hfunc = e->hfunc;
	if (p->indir) memcpy(p->indir, e->indir, sizeof(e->indir));
	if (p->key) memcpy(p->key, e->key, sizeof(e->key));
	return 0;
}

static int sve_set_rxfh(struct net_device *d, struct ethtool_rxfh_param *p, struct netlink_ext_ack *x)
{
	struct sv_ethtool *e = sv_ethtool_of(d);

	if (p->hfunc) e->hfunc = p->hfunc;
	if (p->indir) memcpy(e->indir, p->indir, sizeof(e->indir));
	if (p->key) memcpy(e->key, p->key, sizeof(e->key));
	return 0;
}

/* The kernel keeps a context's table itself. */
static int sve_change_context(struct net_device *d, struct ethtool_rxfh_context *c, const struct ethtool_rxfh_param *p,
			      struct netlink_ext_ack *x)
{
	return 0;
}

static int sve_remove_context(struct net_device *d, struct ethtool_rxfh_context *c, u32 n, struct netlink_ext_ack *x)
{
	return 0;
}

static int sve_get_rules(struct net_device *d, struct ethtool_rxnfc *c, u32 *at)
{
	struct sv_ethtool *e = sv_ethtool_of(d);
	u32 i, n = 0;

	switch (c->cmd) {
	case ETHTOOL_GRXRINGS:
		c->data = SV_QUEUES;
		return 0;
	case ETHTOOL_GRXCLSRLCNT:
		c->rule_cnt = bitmap_weight(e->used, SV_RULES);
		c->data = SV_RULES;
		return 0;
	case ETHTOOL_GRXCLSRULE:
		if (c->fs.location >= SV_RULES || !test_bit(c->fs.location, e->used))
			return -ENOENT;
		c->fs = e->rules[c->fs.location];
		return 0;
	case ETHTOOL_GRXCLSRLALL:
		for_each_set_bit(i, e->used, SV_RULES) {
			if (n == c->rule_cnt)
				return -EMSGSIZE;
			at[n++] = i;
		}
		c->rule_cnt = n;
		c->data = SV_RULES;
		return 0;
	}
	return -EOPNOTSUPP;
}

static int sve_set_rules(struct net_device *d, struct ethtool_rxnfc *c)
{
	struct sv_ethtool *e = sv_ethtool_of(d);

	if (c->fs.location >= SV_RULES)
		return -ENOSPC;
	switch (c->cmd) {
	case ETHTOOL_SRXCLSRLINS:
		e->rules[c->fs.location] = c->fs;
		set_bit(c->fs.location, e->used);
		return 0;
	case ETHTOOL_SRXCLSRLDEL:
		return test_and_clear_bit(c->fs.location, e->used) ? 0 : -ENOENT;
	}
	return -EOPNOTSUPP;
}

static int sve_get_tunable(struct net_device *d, const struct ethtool_tunable *t, void *data)
{
	if (t->id != ETHTOOL_RX_COPYBREAK)
		return -EINVAL;
	*(u32 *)data = sv_ethtool_of(d)->rx_copybreak;
	return 0;
}

static int sve_set_tunable(struct net_device *d, const struct ethtool_tunable *t, const void *data)
{
	if (t->id != ETHTOOL_RX_COPYBREAK)
		return -EINVAL;
	sv_ethtool_of(d)->rx_copybreak = *(u32 *)data;
	return 0;
}

int sv_get_stamps(struct net_device *d, struct kernel_hwtstamp_config *c)
{
	struct sv_ethtool *e = sv_ethtool_of(d);

	c->flags = 0;
	c->tx_type = e->tx_stamps;
	c->rx_filter = e->rx_stamps;
	return 0;
}

int sv_set_stamps(struct net_device *d, struct kernel_hwtstamp_config *c, struct netlink_ext_ack *x)
{
	struct sv_ethtool *e = sv_ethtool_of(d);

	e->tx_stamps = c->tx_type;
	e->rx_stamps = c->rx_filter;
	return 0;
}

void sv_ethtool_init(struct sv_port *p)
{
	struct sv_ethtool *e = &p->ethtool;
	int i;

	e->all_rx_usecs = 8;
	e->all_tx_usecs = 16;
	sv_ethtool_queues(e);
	for (i = 0; i < SV_INDIR; i++)
		e->indir[i] = ethtool_rxfh_indir_default(i, SV_QUEUES);
	e->rx_ring = e->tx_ring = SV_MAXRING / 4;
	e->hfunc = ETH_RSS_HASH_TOP;
}

const struct ethtool_ops sv_eops = {
	.supported_coalesce_params = ETHTOOL_COALESCE_USECS | ETHTOOL_COALESCE_USE_ADAPTIVE_RX, .rxfh_max_num_contexts = 16,
	.get_link = ethtool_op_get_link, .get_link_ksettings = sv_get_speed,
	.get_coalesce = sve_get_coalesce, .set_coalesce = sve_set_coalesce,
	.get_per_queue_coalesce = sve_get_queue, .set_per_queue_coalesce = sve_set_queue,
	.get_ringparam = sve_get_rings, .set_ringparam = sve_set_rings,
	.get_rxfh_indir_size = sve_indir_size, .get_rxfh_key_size = sve_key_size,
	.get_rxfh = sve_get_rxfh, .set_rxfh = sve_set_rxfh,
	.create_rxfh_context = sve_change_context, .modify_rxfh_context = sve_change_context,
	.remove_rxfh_context = sve_remove_context,
	.get_tunable = sve_get_tunable, .set_tunable = sve_set_tunable,
	.get_rxnfc = sve_get_rules, .set_rxnfc = sve_set_rules,
};
