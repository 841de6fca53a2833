// SPDX-License-Identifier: GPL-2.0
/* Work requests of queue pairs: RC in full, so far as programs with the vendor's library need it. */
#include <linux/etherdevice.h>
#include <linux/mlx5/cq.h>
#include <linux/mlx5/qp.h>
#include <linux/slab.h>
#include <rdma/ib_verbs.h>
#include "chip.h"

#define LARGEST_MESSAGE	(1 << 20)
#define UNIT		16
#define INLINE_LENGTH	0x3ff

/* A completion: mlx5_poll_one of drivers/infiniband/hw/mlx5/cq.c reads it, and mlx5_poll_cq of the vendor's library. */
void chip_finish(struct chip_qp *qp, u32 cqn, u8 opcode, u8 syndrome, u16 counter, u32 bytes, u8 wqe_op, __be32 imm)
{
	struct chip_cq *cq = xa_load(&qp->fn->cqs, cqn);
	struct mlx5_cqe64 *cqe = cq ? chip_next_cqe(cq) : NULL;

	if (!cqe)
		return;
	cqe->byte_cnt = cpu_to_be32(bytes);
	cqe->wqe_counter = cpu_to_be16(counter);
	cqe->sop_drop_qpn = cpu_to_be32((u32)wqe_op << 24 | qp->qpn);
	cqe->srqn = cpu_to_be32(qp->user_index);
	cqe->immediate = imm;
	if (opcode == MLX5_CQE_REQ_ERR || opcode == MLX5_CQE_RESP_ERR)
		((struct mlx5_err_cqe *)cqe)->syndrome = syndrome;
	chip_complete(qp->fn, cq, cqe, opcode);
}

/* Into the next receive buffer of a queue pair; how much of it had room. */
u32 chip_scatter(struct chip_qp *to, const u8 *data, u32 len)
{
	u64 base = (u64)(to->rq_ci & ((1 << to->rq.log_size) - 1)) << to->rq.log_stride;
	u32 done = 0, i;

	for (i = 0; done < len && i < 1 << to->rq.log_stride; i += UNIT) {
		struct mlx5_wqe_data_seg *seg = chip_wq_at(&to->rq, base + i);
		u32 n = seg ? min(be32_to_cpu(seg->byte_count), len - done) : 0;

		if (!n || !chip_copy(to->fn, be32_to_cpu(seg->lkey), be64_to_cpu(seg->addr), (u8 *)data + done, n, true))
			break;
		done += n;
	}
	return done;
}

static bool reaches(struct chip_qp *qp, struct chip_qp *to)
{
	int from = chip_vport_number(qp->fn), vport = chip_vport_number(to->fn);
	struct chip_pf *pf = qp->fn->pf;
	u8 gid[16], mac[ETH_ALEN];

	if (chip_is_ib(pf))
		return pf->vport[vport].ib_state == IB_PORT_ACTIVE && pf->vport[from].ib_state == IB_PORT_ACTIVE;
	chip_gid(qp->fn, qp->gid, gid, mac);
	return chip_reaches(qp->fn, vport, qp->rmac, mac);
}

static void *sq_at(struct chip_qp *qp, u64 at)
{
	return chip_wq_at(&qp->sq, at & ((1ULL << (qp->sq.log_size + qp->sq.log_stride)) - 1));
}

/* A request of a send queue, its message and what is wrong with it. */
struct request {
	struct chip_qp *qp, *to;
	struct mlx5_wqe_ctrl_seg *wqe;
	u64 base;
	u8 opcode, units, failed;
	u8 *data;
	u32 len;
};

static bool is_write(u8 opcode)
{
	return opcode == MLX5_OPCODE_RDMA_WRITE || opcode == MLX5_OPCODE_RDMA_WRITE_IMM;
}

/* Whether it takes a receive buffer of the other side. */
static bool is_received(u8 opcode)
{
	return opcode == MLX5_OPCODE_SEND || opcode == MLX5_OPCODE_SEND_IMM || opcode == MLX5_OPCODE_RDMA_WRITE_IMM;
}

static u8 read_remote(struct request *r, struct mlx5_wqe_raddr_seg *remote, struct mlx5_wqe_data_seg *seg, u32 n)
{
	if (!chip_copy(r->to->fn, be32_to_cpu(remote->rkey), be64_to_cpu(remote->raddr) + r->len, r->data, n, false))
		return MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR;
	if (!chip_copy(r->qp->fn, be32_to_cpu(seg->lkey), be64_to_cpu(seg->addr), r->data, n, true))
		return MLX5_CQE_SYNDROME_LOCAL_PROT_ERR;
	return 0;
}

/* The message in one piece; of a read, the pieces as they are read. */
static void collect(struct request *r, struct mlx5_wqe_raddr_seg *remote)
{
	u32 i, k, n;

	for (i = remote ? 2 : 1; i < r->units && !r->failed; i++) {
		u64 at = r->base + i * UNIT;
		struct mlx5_wqe_data_seg *seg = sq_at(r->qp, at);

		n = be32_to_cpu(seg->byte_count);
		if (n & MLX5_INLINE_SEG) {
			n &= INLINE_LENGTH;
			for (k = 0; k < n; k++)
				r->data[r->len + k] = *(u8 *)sq_at(r->qp, at + sizeof(struct mlx5_wqe_inline_seg) + k);
			i += DIV_ROUND_UP(n + sizeof(struct mlx5_wqe_inline_seg), UNIT) - 1;
		} else if (r->len + n > LARGEST_MESSAGE) {
			r->failed = MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR;
		} else if (r->opcode == MLX5_OPCODE_RDMA_READ) {
			r->failed = read_remote(r, remote, seg, n);
		} else if (!chip_copy(r->qp->fn, be32_to_cpu(seg->lkey), be64_to_cpu(seg->addr), r->data + r->len, n, false)) {
			r->failed = MLX5_CQE_SYNDROME_LOCAL_PROT_ERR;
		}
		r->len += n;
	}
}

static void deliver(struct request *r)
{
	bool write = r->opcode == MLX5_OPCODE_RDMA_WRITE_IMM;
	u8 opcode = write ? MLX5_CQE_RESP_WR_IMM :
		    r->opcode == MLX5_OPCODE_SEND ? MLX5_CQE_RESP_SEND : MLX5_CQE_RESP_SEND_IMM;
	struct chip_qp *to = r->to;

	if (!write && chip_scatter(to, r->data, r->len) < r->len) {
		r->failed = MLX5_CQE_SYNDROME_REMOTE_INVAL_REQ_ERR;
		chip_finish(to, to->cqn_rcv, MLX5_CQE_RESP_ERR, MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR, to->rq_ci++, 0, 0, 0);
		return;
	}
	chip_finish(to, to->cqn_rcv, opcode, 0, to->rq_ci++, r->len, 0, r->wqe->imm);
}

static void fail(struct chip_qp *qp, u8 syndrome, u8 opcode)
{
	chip_finish(qp, qp->cqn_snd, MLX5_CQE_REQ_ERR, syndrome, qp->sq_ci, 0, opcode, 0);
	qp->state = MLX5_QP_STATE_ERR;
	MLX5_SET(qpc, qp->context, state, qp->state);
}

/* False: not now, since the receiver has no buffer. */
static bool carry_out(struct request *r)
{
	bool remote = is_write(r->opcode) || r->opcode == MLX5_OPCODE_RDMA_READ;
	struct mlx5_wqe_raddr_seg *address = remote ? sq_at(r->qp, r->base + UNIT) : NULL;
	struct chip_qp *to = r->to;

	if (!to || to->state < MLX5_QP_STATE_RTR || to->state > MLX5_QP_STATE_RTS || !reaches(r->qp, to)) {
		/* Nobody answers. The last retry is over at once. */
		fail(r->qp, MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR, r->opcode);
		return true;
	}
	if (is_received(r->opcode) && chip_producer(&to->rq, MLX5_RCV_DBR) == to->rq_ci)
		return false;
	r->data = kvmalloc(LARGEST_MESSAGE, GFP_ATOMIC);
	if (!r->data)
		return false;
	collect(r, address);
	if (!r->failed && is_write(r->opcode) &&
	    !chip_copy(to->fn, be32_to_cpu(address->rkey), be64_to_cpu(address->raddr), r->data, r->len, true))
		r->failed = MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR;
	if (!r->failed && is_received(r->opcode))
		deliver(r);
	kvfree(r->data);
	if (r->failed) {
		fail(r->qp, r->failed, r->opcode);
		return true;
	}
	if (r->opcode == MLX5_OPCODE_RDMA_READ)
		chip_count_rdma(to->fn, r->qp->fn, r->len);
	else
		chip_count_rdma(r->qp->fn, to->fn, r->len);
	if (r->wqe->fm_ce_se & MLX5_WQE_CTRL_CQ_UPDATE)
		chip_finish(r->qp, r->qp->cqn_snd, MLX5_CQE_REQ, 0, r->qp->sq_ci, r->len, r->opcode, 0);
	return true;
}

/* The next request; false: it has to wait. */
static bool take_request(struct chip_qp *qp)
{
	u64 base = (u64)(qp->sq_ci & ((1 << qp->sq.log_size) - 1)) << qp->sq.log_stride;
	struct mlx5_wqe_ctrl_seg *wqe = sq_at(qp, base);
	u8 opcode = be32_to_cpu(wqe->opmod_idx_opcode), units = be32_to_cpu(wqe->qpn_ds) & 0x3f;
	struct request r = { .qp = qp, .wqe = wqe, .base = base, .opcode = opcode, .units = units };

	chip_say(3, "qp %#x in state %u: request %u is opcode %#x to %#x\n", qp->qpn, qp->state, qp->sq_ci, opcode, qp->remote);
	if (qp->state == MLX5_QP_STATE_ERR) {
		chip_finish(qp, qp->cqn_snd, MLX5_CQE_REQ_ERR, MLX5_CQE_SYNDROME_WR_FLUSH_ERR, qp->sq_ci, 0, opcode, 0);
	} else if (qp->type == MLX5_QP_ST_UD || qp->type == MLX5_QP_ST_QP1) {
		if (opcode == MLX5_OPCODE_SEND)
			chip_send_datagram(qp, base, units);
		if (wqe->fm_ce_se & MLX5_WQE_CTRL_CQ_UPDATE)
			chip_finish(qp, qp->cqn_snd, MLX5_CQE_REQ, 0, qp->sq_ci, 0, opcode, 0);
	} else if (qp->type == MLX5_QP_ST_RC) {
		r.to = xa_load(&qp->fn->pf->qps, qp->remote);
		if (!carry_out(&r))
			return false;
	} else {	/* UMR, of which nothing depends: caps.c */
		chip_finish(qp, qp->cqn_snd, MLX5_CQE_REQ, 0, qp->sq_ci, 0, opcode, 0);
	}
	qp->sq_ci += max(DIV_ROUND_UP(units, MLX5_SEND_WQEBB_NUM_DS), 1);
	return true;
}

/* Buffers that a queue pair in error still has: programs end by these (ib_drain_rq of drivers/infiniband/core/verbs.c). */
static void flush_receives(struct chip_qp *qp)
{
	u16 producer = chip_producer(&qp->rq, MLX5_RCV_DBR);

	while (qp->rq_ci != producer)
		chip_finish(qp, qp->cqn_rcv, MLX5_CQE_RESP_ERR, MLX5_CQE_SYNDROME_WR_FLUSH_ERR, qp->rq_ci++, 0, 0, 0);
}

/* Whether anything was done. */
bool chip_advance(struct chip_qp *qp)
{
	u16 producer = chip_producer(&qp->sq, MLX5_SND_DBR);
	bool any = false;

	if (qp->state == MLX5_QP_STATE_ERR)
		flush_receives(qp);
	while (qp->sq_ci != producer && qp->state >= MLX5_QP_STATE_RTS && take_request(qp))
		any = true;
	return any;
}
