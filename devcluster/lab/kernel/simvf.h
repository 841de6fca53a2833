/* SPDX-License-Identifier: GPL-2.0 */
/* The simulated Ethernet NIC: what simvf.c (netdevs, the switch between them, settings of VFs) and simvf_ethtool.c (what
 * ethtool sets) share.
 */
#ifndef SIMVF_H
#define SIMVF_H

#include <linux/ethtool.h>
#include <linux/hrtimer.h>
#include <linux/netdevice.h>
#include <linux/pci.h>

#define MAXVF 128

struct sv_port;
struct sv_vf {
	u8 mac[ETH_ALEN];
	u16 vlan;
	u8 qos;
	__be16 vproto;
	int min_rate, max_rate, link_state;
	bool spoofchk, trust, rss;
	u64 next_ok, throttled, spoof_drops;
	struct sv_port *port;	/* NULL: no driver is bound */
};
struct sv_pf {
	struct pci_dev *pdev;
	struct net_device *dev, *wire;
	struct sv_vf vf[MAXVF];
};
/* What ethtool sets on a netdev: it lives as long, and survives a move to another namespace. */
#define SV_QUEUES 4
#define SV_INDIR 16
#define SV_KEY 40
#define SV_RULES 16
#define SV_MAXRING 4096
struct sv_ethtool {
	u32 rx_usecs[SV_QUEUES], tx_usecs[SV_QUEUES], rx_ring, tx_ring;
	bool adaptive[SV_QUEUES];
	u32 all_rx_usecs, all_tx_usecs;
	bool all_adaptive;
	u32 indir[SV_INDIR];
	u8 key[SV_KEY], hfunc;
	struct ethtool_rx_flow_spec rules[SV_RULES];
	DECLARE_BITMAP(used, SV_RULES);
	int tx_stamps, rx_stamps;
	u32 rx_copybreak;
};
struct sv_port {
	struct sv_pf *pf;
	struct net_device *dev;
	int vf;			/* -1 PF, -2 wire */
	struct hrtimer t;
	struct sv_ethtool ethtool;
};

/* simvf.c */
int sv_get_speed(struct net_device *dev, struct ethtool_link_ksettings *k);
static inline struct sv_ethtool *sv_ethtool_of(struct net_device *dev)
{
	return &((struct sv_port *)netdev_priv(dev))->ethtool;
}

/* simvf_ethtool.c */
extern const struct ethtool_ops sv_eops;
void sv_ethtool_init(struct sv_port *p);
int sv_get_stamps(struct net_device *dev, struct kernel_hwtstamp_config *c);
int sv_set_stamps(struct net_device *dev, struct kernel_hwtstamp_config *c, struct netlink_ext_ack *x);

#endif
