// SPDX-License-Identifier: GPL-2.0
/*
 * Datagrams of queue pairs: management messages of rdma_cm between functions, and a subnet administrator that answers
 * IPoIB (InfiniBand Architecture Specification 1, chapter 15; records as include/rdma/ib_sa.h has them).
 */
#include <linux/etherdevice.h>
#include <linux/ip.h>
#include <linux/mlx5/cq.h>
#include <linux/mlx5/qp.h>
#include <linux/slab.h>
#include <linux/unaligned.h>
#include <net/ipv6.h>
#include <rdma/ib_mad.h>
#include <rdma/ib_sa.h>
#include "chip.h"

#define GRH		40
#define SM_LID		1
#define FIRST_LID	2	/* of vport 0: chip_query_hca_vport() */
#define LARGEST_DATAGRAM 8192
#define UNIT		16
#define MTU_4096	5
#define EXACTLY		(IB_SA_EQ << 6)
#define RATE_100	16	/* IB_RATE_100_GBPS */

/* mlx5_poll_one of drivers/infiniband/hw/mlx5/cq.c: handle_responder reads the header's kind, source and LID. */
static void deliver(struct chip_qp *to, const u8 *data, u32 len, u32 source, u16 slid, u8 roce_kind)
{
	struct chip_cq *cq = xa_load(&to->fn->cqs, to->cqn_rcv);
	struct mlx5_cqe64 *cqe;

	if (!to->rq.dbr || !cq || chip_producer(&to->rq, MLX5_RCV_DBR) == to->rq_ci)
		return;
	cqe = chip_scatter(to, data, len) == len ? chip_next_cqe(cq) : NULL;
	if (!cqe)
		return;
	cqe->byte_cnt = cpu_to_be32(len);
	cqe->wqe_counter = cpu_to_be16(to->rq_ci++);
	cqe->sop_drop_qpn = cpu_to_be32(to->qpn);
	cqe->srqn = cpu_to_be32(to->user_index);
	cqe->flags_rqpn = cpu_to_be32(source | (roce_kind ? 1u << 28 | (u32)(roce_kind - 1) << 24 : 0));
	cqe->slid = cpu_to_be16(slid);
	cqe->pkey = cpu_to_be32(0xffff);
	cqe->hds_ip_ext = CQE_L2_OK | CQE_L3_OK | CQE_L4_OK;
	chip_complete(to->fn, cq, cqe, MLX5_CQE_RESP_SEND);
}

/* Queue pair 1 is each function's own. */
static struct chip_qp *qp_of(struct chip_fn *fn, u32 qpn)
{
	struct chip_qp *qp;
	unsigned long n;

	if (qpn != 1) {
		qp = xa_load(&fn->pf->qps, qpn);
		return qp && qp->fn == fn ? qp : NULL;
	}
	xa_for_each(&fn->pf->qps, n, qp)
		if (qp->fn == fn && qp->type == MLX5_QP_ST_QP1)
			return qp;
	return NULL;
}

/* A multicast group, made as it is asked for: mcmember_rec_table of drivers/infiniband/core/sa_query.c. */
static void answer_group(u8 *record)
{
	if (!get_unaligned_be32(record + 32))
		put_unaligned_be32(0x0b1b, record + 32);	/* the queue key */
	put_unaligned_be16(0xc000 | record[15], record + 36);	/* its LID */
	record[38] = EXACTLY | MTU_4096;
	if (!get_unaligned_be16(record + 40))
		put_unaligned_be16(0xffff, record + 40);	/* the partition */
	record[42] = EXACTLY | RATE_100;
	record[43] = EXACTLY | 18;				/* life of a packet */
	record[48] |= 2 << 4;					/* scope */
}

/* A path to the port with a GUID: path_rec_table of drivers/infiniband/core/sa_query.c. */
static u16 answer_path(struct chip_fn *fn, u8 *record)
{
	u64 guid = get_unaligned_be64(record + 16);
	int n;

	for (n = 0; n <= CHIP_MAX_VFS; n++)
		if (MLX5_GET64(hca_vport_context, fn->pf->vport[n].hca, port_guid) == guid)
			break;
	if (n > CHIP_MAX_VFS)
		return 0x0300;	/* no records */
	put_unaligned_be16(n + FIRST_LID, record + 40);
	put_unaligned_be16(chip_vport_number(fn) + FIRST_LID, record + 42);
	record[49] |= 0x80;	/* in both directions */
	put_unaligned_be16(0xffff, record + 50);
	record[54] = EXACTLY | MTU_4096;
	record[55] = EXACTLY | RATE_100;
	record[56] = EXACTLY | 18;
	return 0;
}

/* The subnet administrator's answer, in place. False: it is not asked. */
static bool answer(struct chip_fn *fn, struct ib_sa_mad *mad)
{
	u16 status = 0;

	if (mad->mad_hdr.mgmt_class != IB_MGMT_CLASS_SUBN_ADM)
		return false;
	if (mad->mad_hdr.method == IB_MGMT_METHOD_SET)
		mad->mad_hdr.method = IB_MGMT_METHOD_GET_RESP;
	else
		mad->mad_hdr.method |= IB_MGMT_METHOD_RESP;
	switch (be16_to_cpu(mad->mad_hdr.attr_id)) {
	case IB_SA_ATTR_MC_MEMBER_REC:
		answer_group(mad->data);
		break;
	case IB_SA_ATTR_PATH_REC:
		status = answer_path(fn, mad->data);
		break;
	case IB_SA_ATTR_CLASS_PORTINFO:
		mad->data[0] = 1;	/* base version, class version */
		mad->data[1] = 2;
		break;
	}
	mad->mad_hdr.status = cpu_to_be16(status);
	return true;
}

static void send_infiniband(struct chip_qp *qp, struct mlx5_av *av, u8 *data, u32 len, u32 source)
{
	u32 qpn = be32_to_cpu(av->dqp_dct) & 0xffffff;
	int from = chip_vport_number(qp->fn), n = be16_to_cpu(av->rlid) - FIRST_LID;
	struct chip_pf *pf = qp->fn->pf;
	struct chip_fn *fn = chip_function(pf, n);
	struct chip_qp *to;

	if (pf->vport[from].ib_state != IB_PORT_ACTIVE)
		return;
	if (n == SM_LID - FIRST_LID) {
		to = qp_of(qp->fn, 1);
		if (qpn == 1 && to && answer(qp->fn, (void *)data + GRH))
			deliver(to, data, GRH + IB_MGMT_MAD_SIZE, 1, SM_LID, 0);
		return;
	}
	to = fn ? qp_of(fn, qpn) : NULL;
	if (to && pf->vport[n].ib_state == IB_PORT_ACTIVE)
		deliver(to, data, GRH + len, source, from + FIRST_LID, 0);
}

/* The header that precedes a RoCE datagram: ib_get_gids_from_rdma_hdr of drivers/infiniband/core/verbs.c. */
static u8 write_header(u8 *grh, u32 len, const u8 *from, const u8 *to)
{
	struct iphdr *ip = (void *)grh + GRH - sizeof(*ip);

	memset(grh, 0, GRH);
	if (ipv6_addr_v4mapped((const struct in6_addr *)to)) {
		ip->version = 4;
		ip->ihl = 5;
		ip->ttl = 64;
		ip->protocol = IPPROTO_UDP;
		ip->tot_len = cpu_to_be16(len + sizeof(*ip) + 8);
		memcpy(&ip->saddr, from + 12, sizeof(ip->saddr));
		memcpy(&ip->daddr, to + 12, sizeof(ip->daddr));
		ip->check = ip_fast_csum(ip, ip->ihl);
		return 3;	/* MLX5_CQE_ROCE_L3_HEADER_TYPE_IPV4 + 1 */
	}
	grh[0] = 0x60;
	put_unaligned_be16(len, grh + 4);
	grh[6] = IPPROTO_UDP;
	grh[7] = 64;
	memcpy(grh + 8, from, 16);
	memcpy(grh + 24, to, 16);
	return 2;	/* MLX5_CQE_ROCE_L3_HEADER_TYPE_IPV6 + 1 */
}

static void send_roce(struct chip_qp *qp, struct mlx5_av *av, u8 *data, u32 len, u32 source)
{
	u32 qpn = be32_to_cpu(av->dqp_dct) & 0xffffff;
	struct chip_pf *pf = qp->fn->pf;
	u8 gid[16], mac[ETH_ALEN], kind;
	int n;

	chip_gid(qp->fn, be32_to_cpu(av->grh_gid_fl) >> 20 & 0xff, gid, mac);
	for (n = 0; n <= CHIP_MAX_VFS; n++) {
		struct chip_fn *fn = chip_function(pf, n);
		struct chip_qp *to = fn && fn->initialized ? qp_of(fn, qpn) : NULL;

		if (!to || (fn == qp->fn && !ether_addr_equal(av->rmac, mac)) || !chip_reaches(qp->fn, n, av->rmac, mac))
			continue;
		kind = write_header(data, len, gid, av->rgid);
		deliver(to, data, GRH + len, source, 0, kind);
	}
}

/* set_datagram_seg of drivers/infiniband/hw/mlx5/wr.c: the address vector, then the pieces */
void chip_send_datagram(struct chip_qp *qp, u64 base, u8 units)
{
	u64 mask = (1ULL << (qp->sq.log_size + qp->sq.log_stride)) - 1;
	u8 *data = kzalloc(GRH + LARGEST_DATAGRAM, GFP_ATOMIC);
	struct mlx5_av *av = chip_wq_at(&qp->sq, base + UNIT);
	u32 len = 0, source, i;

	if (!data)
		return;
	source = qp->type == MLX5_QP_ST_QP1 ? 1 : qp->deth ?: qp->qpn;
	for (i = 1 + sizeof(struct mlx5_av) / UNIT; i < units; i++) {
		struct mlx5_wqe_data_seg *seg = chip_wq_at(&qp->sq, (base + i * UNIT) & mask);
		u32 n = be32_to_cpu(seg->byte_count);

		if (n & MLX5_INLINE_SEG || len + n > LARGEST_DATAGRAM ||
		    !chip_copy(qp->fn, be32_to_cpu(seg->lkey), be64_to_cpu(seg->addr), data + GRH + len, n, false))
			break;
		len += n;
	}
	if (chip_is_ib(qp->fn->pf))
		send_infiniband(qp, av, data, len, source);
	else
		send_roce(qp, av, data, len, source);
	kfree(data);
}
