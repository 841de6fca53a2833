// SPDX-License-Identifier: GPL-2.0
/* A frame as a match sees it: fte_match_set_lyr_2_4 and fte_match_set_misc of mlx5_ifc.h. */
#include <linux/if_vlan.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/unaligned.h>
#include "chip.h"

#define SET(field, value)	MLX5_SET(fte_match_set_lyr_2_4, match, field, value)
#define AT(field)		MLX5_ADDR_OF(fte_match_set_lyr_2_4, match, field)

static void match_ports(u8 *match, u8 protocol, const u8 *l4, u32 len)
{
	if (protocol == IPPROTO_UDP && len >= 8) {
		SET(udp_sport, get_unaligned_be16(l4));
		SET(udp_dport, get_unaligned_be16(l4 + 2));
	} else if (protocol == IPPROTO_TCP && len >= 20) {
		SET(tcp_sport, get_unaligned_be16(l4));
		SET(tcp_dport, get_unaligned_be16(l4 + 2));
	}
}

static void match_ip(u8 *match, u16 ethertype, const u8 *l3, u32 len)
{
	const struct ipv6hdr *ip6 = (const void *)l3;
	const struct iphdr *ip = (const void *)l3;

	if (ethertype == ETH_P_IP && len >= sizeof(*ip)) {
		SET(ip_version, 4);
		SET(ip_protocol, ip->protocol);
		memcpy(AT(src_ipv4_src_ipv6.ipv4_layout.ipv4), &ip->saddr, sizeof(ip->saddr));
		memcpy(AT(dst_ipv4_dst_ipv6.ipv4_layout.ipv4), &ip->daddr, sizeof(ip->daddr));
		if (len >= ip->ihl * 4)
			match_ports(match, ip->protocol, l3 + ip->ihl * 4, len - ip->ihl * 4);
	} else if (ethertype == ETH_P_IPV6 && len >= sizeof(*ip6)) {
		SET(ip_version, 6);
		SET(ip_protocol, ip6->nexthdr);
		memcpy(AT(src_ipv4_src_ipv6), &ip6->saddr, sizeof(ip6->saddr));
		memcpy(AT(dst_ipv4_dst_ipv6), &ip6->daddr, sizeof(ip6->daddr));
	}
}

void chip_headers(u8 *match, const u8 *frame, u32 len, int from)
{
	u16 ethertype = get_unaligned_be16(frame + 2 * ETH_ALEN);
	u32 at = ETH_HLEN;

	memset(match, 0, CHIP_MATCH);
	ether_addr_copy(AT(dmac_47_16), frame);
	memcpy(AT(smac_47_16), frame + ETH_ALEN, ETH_ALEN);
	if (ethertype == ETH_P_8021Q && len >= VLAN_ETH_HLEN) {
		u16 tci = get_unaligned_be16(frame + ETH_HLEN);

		SET(cvlan_tag, 1);
		SET(first_vid, tci & VLAN_VID_MASK);
		SET(first_prio, tci >> VLAN_PRIO_SHIFT);
		ethertype = get_unaligned_be16(frame + ETH_HLEN + 2);
		at += VLAN_HLEN;
	}
	SET(ethertype, ethertype);
	match_ip(match, ethertype, frame + at, len - at);
	MLX5_SET(fte_match_set_misc, match + CHIP_OUTER, source_port, from);
}
