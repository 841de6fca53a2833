// SPDX-License-Identifier: GPL-2.0
/* Frames of the netdevs' queues: what the driver leaves to the card, checksums, segments and VLAN tags. */
#include <linux/etherdevice.h>
#include <linux/if_vlan.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/mlx5/cq.h>
#include <linux/mlx5/qp.h>
#include <linux/slab.h>
#include <linux/tcp.h>
#include <linux/unaligned.h>
#include <net/checksum.h>
#include <net/ip6_checksum.h>
#include "chip.h"

#define LARGEST_SEND	70000
#define WQE_UNIT	16	/* of a send request's size, MLX5_SEND_WQE_DS of qp.h */
#define INLINE_START	(WQE_UNIT + offsetof(struct mlx5_wqe_eth_seg, inline_hdr.start))
/* MLX5_ETH_WQE_INSERT_VLAN of 6.12's qp.h, which Linux 7.2 has no more; the tag lies where inline headers begin. */
#define INSERT_VLAN	(1 << 15)

/* mlx5e_handle_rx_cqe of en_rx.c reads the completion. */
void chip_receive(struct chip_fn *fn, u32 tir, u32 tag, const u8 *frame, u32 len)
{
	struct chip_rq *rq = chip_tir_rq(fn, tir);
	struct chip_cq *cq = rq ? xa_load(&fn->cqs, rq->cqn) : NULL;
	struct mlx5_cqe64 *cqe;
	u32 done = 0, i;
	u64 base;

	if (!cq || !rq->ready || chip_producer(&rq->wq, MLX5_RCV_DBR) == rq->ci)
		return;
	base = (u64)(rq->ci & ((1 << rq->wq.log_size) - 1)) << rq->wq.log_stride;
	for (i = 0; done < len && i < 1 << rq->wq.log_stride; i += sizeof(struct mlx5_wqe_data_seg)) {
		struct mlx5_wqe_data_seg *seg = chip_wq_at(&rq->wq, base + i);
		u32 n = seg ? min_t(u32, be32_to_cpu(seg->byte_count), len - done) : 0;

		if (!n || seg->lkey == MLX5_TERMINATE_SCATTER_LIST_LKEY)
			break;
		memcpy(__va(be64_to_cpu(seg->addr)), frame + done, n);
		done += n;
	}
	cqe = done == len ? chip_next_cqe(cq) : NULL;
	if (!cqe)
		return;
	cqe->hds_ip_ext = CQE_L2_OK | CQE_L3_OK | CQE_L4_OK;
	if (len > ETH_HLEN)	/* mlx5e_handle_csum of en_rx.c */
		cqe->check_sum = (__force __be16)~csum_fold(csum_partial(frame + ETH_HLEN, len - ETH_HLEN, 0));
	cqe->byte_cnt = cpu_to_be32(len);
	cqe->wqe_counter = cpu_to_be16(rq->ci);
	cqe->sop_drop_qpn = cpu_to_be32(tag);
	rq->ci++;
	chip_complete(fn, cq, cqe, MLX5_CQE_RESP_SEND);
}

static u32 ip_offset(const u8 *frame)
{
	return ETH_HLEN + (get_unaligned_be16(frame + 2 * ETH_ALEN) == ETH_P_8021Q ? VLAN_HLEN : 0);
}

/* Of TCP or UDP directly after IP: mlx5e_txwqe_build_eseg_csum of en_tx.c. */
static void fill_checksums(u8 *frame, u32 len)
{
	u32 at = ip_offset(frame), l4, n;
	struct ipv6hdr *ip6 = (void *)frame + at;
	struct iphdr *ip = (void *)frame + at;
	bool v4 = ip->version == 4;
	u8 protocol = v4 ? ip->protocol : ip6->nexthdr;
	__sum16 *sum;
	__wsum bytes;

	l4 = at + (v4 ? ip->ihl * 4 : sizeof(*ip6));
	if (l4 + 8 > len || (protocol != IPPROTO_TCP && protocol != IPPROTO_UDP))
		return;
	if (v4) {
		ip->check = 0;
		ip->check = ip_fast_csum(ip, ip->ihl);
	}
	n = v4 ? be16_to_cpu(ip->tot_len) - ip->ihl * 4 : be16_to_cpu(ip6->payload_len);
	n = min(n, len - l4);
	sum = (void *)frame + l4 + (protocol == IPPROTO_TCP ? 16 : 6);
	*sum = 0;
	bytes = csum_partial(frame + l4, n, 0);
	*sum = v4 ? csum_tcpudp_magic(ip->saddr, ip->daddr, n, protocol, bytes) :
		    csum_ipv6_magic(&ip6->saddr, &ip6->daddr, n, protocol, bytes);
	if (!*sum)
		*sum = CSUM_MANGLED_0;
}

/* One segment of a large send: the headers again, with what changes from one to the next. */
static void fill_segment(u8 *segment, u32 headers, u32 n, u32 before, u32 index, bool last)
{
	struct iphdr *ip = (void *)segment + ip_offset(segment);
	struct tcphdr *tcp;

	if (ip->version == 4) {
		ip->tot_len = cpu_to_be16(headers - ip_offset(segment) + n);
		ip->id = cpu_to_be16(be16_to_cpu(ip->id) + index);
		tcp = (void *)ip + ip->ihl * 4;
	} else {
		((struct ipv6hdr *)ip)->payload_len = cpu_to_be16(headers - ip_offset(segment) - sizeof(struct ipv6hdr) + n);
		tcp = (void *)ip + sizeof(struct ipv6hdr);
	}
	tcp->seq = cpu_to_be32(be32_to_cpu(tcp->seq) + before);
	if (!last) {
		tcp->fin = 0;
		tcp->psh = 0;
	}
	fill_checksums(segment, headers + n);
}

static void send_segments(struct chip_sq *sq, const u8 *frame, u32 len, u32 headers, u16 mss)
{
	u8 *segment = kmalloc(headers + mss + VLAN_HLEN, GFP_ATOMIC);
	u32 sent, n, index = 0;

	for (sent = headers; segment && sent < len; sent += n) {
		n = min_t(u32, mss, len - sent);
		memcpy(segment, frame, headers);
		memcpy(segment + headers, frame + sent, n);
		fill_segment(segment, headers, n, sent - headers, index++, sent + n == len);
		chip_transmit(sq->fn, segment, headers + n);
	}
	kfree(segment);
}

/* What lies in a send queue, which goes round. */
static void *sq_at(struct chip_sq *sq, u64 at)
{
	return chip_wq_at(&sq->wq, at & ((1ULL << (sq->wq.log_size + sq->wq.log_stride)) - 1));
}

/* The frame of a request: inline headers, then the pieces (mlx5e_sq_xmit_wqe of en_tx.c). */
static u32 gather_frame(struct chip_sq *sq, u64 base, u8 units, u16 inlined, u8 *frame)
{
	u32 len, i, first = 2;

	for (len = 0; len < inlined; len++)
		frame[len] = *(u8 *)sq_at(sq, base + INLINE_START + len);
	if (inlined > 2)
		first += DIV_ROUND_UP(inlined - 2, WQE_UNIT);
	for (i = first; i < units; i++) {
		struct mlx5_wqe_data_seg *seg = sq_at(sq, base + i * WQE_UNIT);
		u32 n = be32_to_cpu(seg->byte_count);

		if (n & MLX5_INLINE_SEG || len + n > LARGEST_SEND)
			break;
		memcpy(frame + len, __va(be64_to_cpu(seg->addr)), n);
		len += n;
	}
	return len;
}

static void send(struct chip_sq *sq, u64 base, u8 units)
{
	struct mlx5_wqe_eth_seg *eth = sq_at(sq, base + WQE_UNIT);
	u8 *frame = kmalloc(LARGEST_SEND + 2 * VLAN_HLEN, GFP_ATOMIC);
	u16 inlined = be16_to_cpu(eth->inline_hdr.sz), mss = be16_to_cpu(eth->mss);
	bool tagged = inlined & INSERT_VLAN;
	u32 len;

	if (!frame)
		return;
	if (tagged)
		inlined = 0;
	len = gather_frame(sq, base, units, inlined, frame);
	if (tagged && len > 2 * ETH_ALEN) {
		memmove(frame + 2 * ETH_ALEN + VLAN_HLEN, frame + 2 * ETH_ALEN, len - 2 * ETH_ALEN);
		put_unaligned_be16(ETH_P_8021Q, frame + 2 * ETH_ALEN);
		memcpy(frame + 2 * ETH_ALEN + 2, eth->inline_hdr.start, sizeof(u16));
		len += VLAN_HLEN;
	}
	if (mss && len > ETH_HLEN + sizeof(struct iphdr)) {
		send_segments(sq, frame, len, inlined + (tagged ? VLAN_HLEN : 0), mss);
	} else {
		if (len > ETH_HLEN + sizeof(struct iphdr) && (eth->cs_flags & MLX5_ETH_WQE_L4_CSUM))
			fill_checksums(frame, len);
		chip_transmit(sq->fn, frame, len);
	}
	kfree(frame);
}

/* mlx5e_poll_tx_cq of en_tx.c reads the completion. */
static void complete_send(struct chip_sq *sq, u8 opcode)
{
	struct chip_cq *cq = xa_load(&sq->fn->cqs, sq->cqn);
	struct mlx5_cqe64 *cqe = cq ? chip_next_cqe(cq) : NULL;

	if (!cqe)
		return;
	cqe->wqe_counter = cpu_to_be16(sq->ci);
	cqe->sop_drop_qpn = cpu_to_be32(opcode << 24 | sq->sqn);
	chip_complete(sq->fn, cq, cqe, MLX5_CQE_REQ);
}

void chip_ring_sq(struct chip_sq *sq)
{
	u16 producer = chip_producer(&sq->wq, MLX5_SND_DBR);

	while (sq->ci != producer) {
		u64 base = (u64)(sq->ci & ((1 << sq->wq.log_size) - 1)) << sq->wq.log_stride;
		struct mlx5_wqe_ctrl_seg *wqe = sq_at(sq, base);
		u8 opcode = be32_to_cpu(wqe->opmod_idx_opcode), units = be32_to_cpu(wqe->qpn_ds) & 0x3f;

		if (opcode == MLX5_OPCODE_SEND || opcode == MLX5_OPCODE_LSO)
			send(sq, base, units);
		if (wqe->fm_ce_se & MLX5_WQE_CTRL_CQ_UPDATE)
			complete_send(sq, opcode);
		sq->ci += max(DIV_ROUND_UP(units, MLX5_SEND_WQEBB_NUM_DS), 1);
	}
}
