// SPDX-License-Identifier: GPL-2.0
/*
 * The path of a frame: the sender's ingress ACL, its VLAN, the switch's table, the receiver's egress ACL and its VLAN,
 * the receiver's own tables. "Ingress" and "egress" are the switch's, as in esw/acl.
 */
#include <linux/etherdevice.h>
#include <linux/if_vlan.h>
#include <linux/ip.h>
#include <linux/mlx5/vport.h>
#include <linux/slab.h>
#include <linux/unaligned.h>
#include "chip.h"

#define RECEIVERS	32
#define ROCE_PORT	4791

static u32 push_vlan(u8 *frame, u32 len, u16 tci)
{
	memmove(frame + 2 * ETH_ALEN + VLAN_HLEN, frame + 2 * ETH_ALEN, len - 2 * ETH_ALEN);
	put_unaligned_be16(ETH_P_8021Q, frame + 2 * ETH_ALEN);
	put_unaligned_be16(tci, frame + ETH_HLEN);
	return len + VLAN_HLEN;
}

static u32 pop_vlan(u8 *frame, u32 len)
{
	if (get_unaligned_be16(frame + 2 * ETH_ALEN) != ETH_P_8021Q)
		return len;
	memmove(frame + 2 * ETH_ALEN, frame + ETH_HLEN + 2, len - ETH_HLEN - 2);
	return len - VLAN_HLEN;
}

/* The VLAN of a vport that has one, priority included; 0 for others (modify_esw_vport_cvlan of eswitch.c). */
static u16 vlan_of(struct chip_vport *vport)
{
	if (!MLX5_GET(esw_vport_context, vport->esw, vport_cvlan_insert))
		return 0;
	return MLX5_GET(esw_vport_context, vport->esw, cvlan_pcp) << VLAN_PRIO_SHIFT |
	       MLX5_GET(esw_vport_context, vport->esw, cvlan_id);
}

/* A frame at the egress of a vport. */
static void arrive(struct chip_pf *pf, int vport, u8 *frame, u32 len)
{
	struct chip_fn *fn = chip_function(pf, vport);
	struct chip_vport *v = chip_vport(pf, vport);
	u8 match[CHIP_MATCH];
	struct chip_dest to[8];
	u32 n, i;

	if (!fn || !v || !fn->initialized || !chip_vport_up(pf, vport))
		return;
	chip_headers(match, frame, len, vport);
	if (chip_walk(pf, CHIP_EGRESS_ACL, vport, match, to, &n, ARRAY_SIZE(to)) == CHIP_DROP)
		return;
	if (MLX5_GET(esw_vport_context, v->esw, vport_cvlan_strip))
		len = pop_vlan(frame, len);
	chip_headers(match, frame, len, vport);
	v->rx_packets++;
	v->rx_bytes += len;
	if (chip_walk(pf, CHIP_NIC_RX, vport, match, to, &n, ARRAY_SIZE(to)) != CHIP_FORWARD)
		return;
	for (i = 0; i < n; i++)
		if (to[i].type == MLX5_IFC_FLOW_DESTINATION_TYPE_TIR)
			chip_receive(fn, to[i].id, to[i].tag, frame, len);
}

/*
 * Where the switch sends a frame. The legacy table of esw/legacy.c has the vports' addresses and what is to go to all.
 * Remembered: what matches nothing leaves by the wire, if it did not come from there; and without a table, which the
 * driver makes with the first VF, wire and PF are connected.
 */
static u32 receivers(struct chip_pf *pf, const u8 *match, int from, struct chip_dest *to)
{
	enum chip_walk verdict;
	u32 n;

	verdict = chip_walk(pf, CHIP_FDB, 0, match, to, &n, RECEIVERS);
	if (verdict == CHIP_FORWARD)
		return n;
	if (verdict == CHIP_NO_TABLE || (verdict == CHIP_NO_RULE && from != MLX5_VPORT_UPLINK)) {
		to[0] = (struct chip_dest){
			.type = MLX5_IFC_FLOW_DESTINATION_TYPE_VPORT,
			.id = from == MLX5_VPORT_UPLINK ? 0 : MLX5_VPORT_UPLINK,
		};
		return 1;
	}
	return 0;
}

static void distribute(struct chip_pf *pf, const u8 *match, int from, const u8 *frame, u32 len)
{
	u8 *copy = kmalloc(len + VLAN_HLEN, GFP_ATOMIC);
	struct chip_dest to[RECEIVERS];
	u32 n, i;

	n = copy ? receivers(pf, match, from, to) : 0;
	for (i = 0; i < n; i++) {
		if (to[i].type != MLX5_IFC_FLOW_DESTINATION_TYPE_VPORT || to[i].id == from)
			continue;
		memcpy(copy, frame, len);
		if (to[i].id == MLX5_VPORT_UPLINK)
			chip_to_wire(pf, copy, len);
		else
			arrive(pf, to[i].id, copy, len);
	}
	kfree(copy);
}

/* A frame that a function sends. It has room for a VLAN tag. */
void chip_transmit(struct chip_fn *fn, u8 *frame, u32 len)
{
	struct chip_pf *pf = fn->pf;
	int from = chip_vport_number(fn);
	struct chip_vport *v = chip_vport(pf, from);
	u8 match[CHIP_MATCH];
	struct chip_dest none[1];
	u32 n;

	if (len < ETH_HLEN || !chip_vport_up(pf, from) || len + ETH_FCS_LEN > pf->frame_max)
		return;
	spin_lock_bh(&pf->steering);
	v->tx_packets++;
	v->tx_bytes += len;
	chip_headers(match, frame, len, from);
	if (chip_walk(pf, CHIP_INGRESS_ACL, from, match, none, &n, 1) != CHIP_DROP) {
		if (vlan_of(v)) {
			len = push_vlan(frame, len, vlan_of(v));
			chip_headers(match, frame, len, from);
		}
		distribute(pf, match, from, frame, len);
	}
	spin_unlock_bh(&pf->steering);
}

void chip_from_wire(struct chip_pf *pf, u8 *frame, u32 len)
{
	u8 match[CHIP_MATCH];

	if (len < ETH_HLEN || !pf->port_up || len + ETH_FCS_LEN > pf->frame_max)
		return;
	spin_lock_bh(&pf->steering);
	chip_headers(match, frame, len, MLX5_VPORT_UPLINK);
	distribute(pf, match, MLX5_VPORT_UPLINK, frame, len);
	spin_unlock_bh(&pf->steering);
}

/* Whether a RoCE packet with these addresses gets from a function to a vport, as far as the switch decides. */
bool chip_reaches(struct chip_fn *fn, int vport, const u8 *to_mac, const u8 *from_mac)
{
	u8 frame[64 + VLAN_HLEN] = { 0 }, match[CHIP_MATCH];
	struct iphdr *ip = (void *)frame + ETH_HLEN;
	struct chip_pf *pf = fn->pf;
	int from = chip_vport_number(fn);
	struct chip_vport *v = chip_vport(pf, from);
	u32 len = sizeof(frame) - VLAN_HLEN, n, i, none_n;
	struct chip_dest to[RECEIVERS], none[1];
	bool there = false;

	if (from == vport)
		return chip_vport_up(pf, from);
	if (!chip_vport_up(pf, from) || !chip_vport_up(pf, vport))
		return false;
	ether_addr_copy(frame, to_mac);
	ether_addr_copy(frame + ETH_ALEN, from_mac);
	put_unaligned_be16(ETH_P_IP, frame + 2 * ETH_ALEN);
	ip->version = 4;
	ip->ihl = sizeof(*ip) / 4;
	ip->protocol = IPPROTO_UDP;
	put_unaligned_be16(ROCE_PORT, frame + ETH_HLEN + sizeof(*ip) + 2);
	spin_lock_bh(&pf->steering);
	chip_headers(match, frame, len, from);
	if (chip_walk(pf, CHIP_INGRESS_ACL, from, match, none, &none_n, 1) == CHIP_DROP)
		goto out;
	if (vlan_of(v)) {
		len = push_vlan(frame, len, vlan_of(v));
		chip_headers(match, frame, len, from);
	}
	n = receivers(pf, match, from, to);
	for (i = 0; i < n; i++)
		there |= to[i].type == MLX5_IFC_FLOW_DESTINATION_TYPE_VPORT && to[i].id == vport;
	if (there)
		there = chip_walk(pf, CHIP_EGRESS_ACL, vport, match, none, &none_n, 1) != CHIP_DROP;
out:
	spin_unlock_bh(&pf->steering);
	return there;
}
