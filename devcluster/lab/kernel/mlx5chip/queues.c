// SPDX-License-Identifier: GPL-2.0
/* Event, completion, send and receive queues: how they are made, and what the chip writes into them. */
#include <linux/mlx5/cq.h>
#include <linux/mlx5/qp.h>
#include <linux/slab.h>
#include <linux/unaligned.h>
#include "chip.h"

/* The list of pages at the end of a command. */
void chip_take_pas(u64 **pas, u32 *npas, const void *list, const void *end)
{
	u32 i;

	*npas = end > list ? (end - list) / sizeof(u64) : 0;
	*pas = kmalloc_array(*npas + 1, sizeof(u64), GFP_KERNEL);
	if (!*pas)
		*npas = 0;
	for (i = 0; i < *npas; i++)
		(*pas)[i] = get_unaligned_be64(list + i * sizeof(u64));
}

/* What lies at an offset in a queue; its first bytes in one page. NULL: past its pages. */
void *chip_wq_at(struct chip_wq *wq, u64 offset)
{
	u64 page;

	offset += wq->offset;
	page = offset >> wq->log_page;
	if (page >= wq->npas)
		return NULL;
	return __va((wq->pas[page] & ~0xfffULL) + (offset & ((1ULL << wq->log_page) - 1)));
}

/* How many requests have been posted: a doorbell record, MLX5_RCV_DBR or MLX5_SND_DBR. */
u16 chip_producer(const struct chip_wq *wq, int index)
{
	return be32_to_cpu(((__be32 *)__va(wq->dbr))[index]);
}

/* Event queues */

static void post_event(struct chip_fn *fn, struct chip_eq *eq, u8 type, u8 subtype, const void *data, size_t len)
{
	u32 at = (eq->pi & ((1 << eq->log_size) - 1)) * sizeof(struct mlx5_eqe);
	struct mlx5_eqe *eqe;
	unsigned long flags;
	bool raise;

	spin_lock_irqsave(&fn->lock, flags);
	eqe = __va(eq->pas[at >> 12] & ~0xfffULL) + (at & 0xfff);
	memset(eqe, 0, sizeof(*eqe) - 1);
	eqe->type = type;
	eqe->sub_type = subtype;
	memcpy(&eqe->data, data, min(len, sizeof(eqe->data)));
	wmb();	/* the owner last: next_eqe_sw of lib/eq.h reads it first */
	eqe->owner = eq->pi >> eq->log_size & 1;
	eq->pi++;
	raise = eq->armed;
	eq->armed = false;
	spin_unlock_irqrestore(&fn->lock, flags);
	if (raise)
		chip_raise(fn, eq->intr);
}

void chip_event(struct chip_fn *fn, u8 type, u8 subtype, const void *data, size_t len)
{
	struct chip_eq *eq;
	unsigned long n;

	xa_for_each(&fn->eqs, n, eq)
		if (eq->mask[type / 64] >> (type % 64) & 1)
			post_event(fn, eq, type, subtype, data, len);
}

/* eq_update_ci of lib/eq.h: the queue's number above the consumer's index */
void chip_eq_doorbell(struct chip_fn *fn, u32 value, bool arm)
{
	struct chip_eq *eq = xa_load(&fn->eqs, value >> 24);

	if (!eq)
		return;
	eq->ci = value & 0xffffff;
	if (!arm)
		return;
	if (eq->ci != (eq->pi & 0xffffff))
		chip_raise(fn, eq->intr);
	else
		eq->armed = true;
}

int chip_create_eq(struct chip_call *call)
{
	void *context = MLX5_ADDR_OF(create_eq_in, call->in, eq_context_entry);
	struct chip_eq *eq = kzalloc(sizeof(*eq), GFP_KERNEL);
	u32 id;
	int i;

	if (!eq || xa_alloc(&call->fn->eqs, &id, eq, XA_LIMIT(1, 63), GFP_KERNEL)) {
		kfree(eq);
		return MLX5_CMD_STAT_NO_RES_ERR;
	}
	eq->eqn = id;
	eq->log_size = MLX5_GET(eqc, context, log_eq_size);
	eq->intr = MLX5_GET(eqc, context, intr);
	for (i = 0; i < ARRAY_SIZE(eq->mask); i++)
		eq->mask[i] = get_unaligned_be64(MLX5_ADDR_OF(create_eq_in, call->in, event_bitmask[i]));
	chip_take_pas(&eq->pas, &eq->npas, MLX5_ADDR_OF(create_eq_in, call->in, pas), call->in + call->inlen);
	chip_answer_id(call, id);
	return 0;
}

/* Completion queues */

static void notify(struct chip_fn *fn, struct chip_cq *cq)
{
	struct mlx5_eqe_comp data = { .cqn = cpu_to_be32(cq->cqn) };
	struct chip_eq *eq = xa_load(&fn->eqs, cq->eqn);

	cq->armed = false;
	if (eq)
		post_event(fn, eq, MLX5_EVENT_TYPE_COMP, 0, &data, sizeof(data));
}

#define ARM_RECORD	1	/* the second word of a doorbell record: mlx5_cq_arm of include/linux/mlx5/cq.h */

static void arm(struct chip_fn *fn, struct chip_cq *cq, u32 ci)
{
	cq->ci = ci & 0xffffff;
	if (cq->ci != (cq->pi & 0xffffff))
		notify(fn, cq);
	else
		cq->armed = true;
}

static u32 arm_record(struct chip_cq *cq)
{
	return be32_to_cpu(((__be32 *)__va(cq->wq.dbr))[ARM_RECORD]);
}

void chip_arm_cq(struct chip_fn *fn, u32 cqn, u32 ci)
{
	struct chip_cq *cq = xa_load(&fn->cqs, cqn);

	if (!cq)
		return;
	cq->arm_seen = arm_record(cq);
	arm(fn, cq, ci);
}

/* A process arms a queue by its doorbell record too: a word that was not seen before is a request. */
void chip_poll_cq_record(struct chip_fn *fn, struct chip_cq *cq)
{
	u32 word = arm_record(cq);

	if (word == cq->arm_seen)
		return;
	cq->arm_seen = word;
	arm(fn, cq, word);
}

/* Where the next completion goes; entries of 128 bytes have it in the second half (get_sw_cqe of ib: cq.c). */
struct mlx5_cqe64 *chip_next_cqe(struct chip_cq *cq)
{
	u32 i = cq->pi & ((1 << cq->wq.log_size) - 1);
	void *slot = chip_wq_at(&cq->wq, (u64)i << cq->log_cqe);
	struct mlx5_cqe64 *cqe = slot ? slot + (1 << cq->log_cqe) - sizeof(*cqe) : NULL;

	if (cqe)
		memset(cqe, 0, sizeof(*cqe) - 1);
	return cqe;
}

void chip_complete(struct chip_fn *fn, struct chip_cq *cq, struct mlx5_cqe64 *cqe, u8 opcode)
{
	wmb();	/* the owner last: mlx5_cqwq_get_cqe of wq.h reads it first */
	cqe->op_own = opcode << 4 | (cq->pi >> cq->wq.log_size & 1);
	cq->pi++;
	if (cq->armed)
		notify(fn, cq);
}

int chip_create_cq(struct chip_call *call)
{
	void *context = MLX5_ADDR_OF(create_cq_in, call->in, cq_context);
	struct chip_cq *cq = kzalloc(sizeof(*cq), GFP_KERNEL);
	u32 id;

	if (!cq || xa_alloc(&call->fn->cqs, &id, cq, XA_LIMIT(0x400, 0xffff), GFP_KERNEL)) {
		kfree(cq);
		return MLX5_CMD_STAT_NO_RES_ERR;
	}
	cq->cqn = id;
	cq->eqn = MLX5_GET(cqc, context, c_eqn_or_apu_element);
	cq->log_cqe = MLX5_GET(cqc, context, cqe_sz) ? 7 : 6;
	cq->wq.log_size = MLX5_GET(cqc, context, log_cq_size);
	cq->wq.log_page = MLX5_GET(cqc, context, log_page_size) + 12;
	cq->wq.offset = chip_page_offset(MLX5_GET(cqc, context, page_offset), cq->wq.log_page);
	cq->wq.dbr = MLX5_GET64(cqc, context, dbr_addr);
	chip_take_pas(&cq->wq.pas, &cq->wq.npas, MLX5_ADDR_OF(create_cq_in, call->in, pas), call->in + call->inlen);
	chip_answer_id(call, id);
	return 0;
}

/* Send and receive queues of netdevs */

static void take_wq(struct chip_wq *to, void *wq, struct chip_call *call)
{
	to->log_size = MLX5_GET(wq, wq, log_wq_sz);
	to->log_stride = MLX5_GET(wq, wq, log_wq_stride);
	to->log_page = MLX5_GET(wq, wq, log_wq_pg_sz) + 12;
	to->offset = chip_page_offset(MLX5_GET(wq, wq, page_offset), to->log_page);
	to->dbr = MLX5_GET64(wq, wq, dbr_addr);
	chip_take_pas(&to->pas, &to->npas, MLX5_ADDR_OF(wq, wq, pas), call->in + call->inlen);
}

int chip_create_sq(struct chip_call *call)
{
	void *context = MLX5_ADDR_OF(create_sq_in, call->in, ctx);
	struct chip_sq *sq = kzalloc(sizeof(*sq), GFP_KERNEL);
	u32 id;

	if (!sq || xa_alloc(&call->fn->sqs, &id, sq, XA_LIMIT(0x1000, 0x1fff), GFP_KERNEL)) {
		kfree(sq);
		return MLX5_CMD_STAT_NO_RES_ERR;
	}
	sq->sqn = id;
	sq->fn = call->fn;
	sq->cqn = MLX5_GET(sqc, context, cqn);
	take_wq(&sq->wq, MLX5_ADDR_OF(sqc, context, wq), call);
	chip_answer_id(call, id);
	return 0;
}

int chip_create_rq(struct chip_call *call)
{
	void *context = MLX5_ADDR_OF(create_rq_in, call->in, ctx);
	struct chip_rq *rq = kzalloc(sizeof(*rq), GFP_KERNEL);
	u32 id;

	if (!rq || xa_alloc(&call->fn->rqs, &id, rq, XA_LIMIT(0x2000, 0x2fff), GFP_KERNEL)) {
		kfree(rq);
		return MLX5_CMD_STAT_NO_RES_ERR;
	}
	rq->rqn = id;
	rq->cqn = MLX5_GET(rqc, context, cqn);
	take_wq(&rq->wq, MLX5_ADDR_OF(rqc, context, wq), call);
	chip_answer_id(call, id);
	return 0;
}

/* mlx5e_modify_rq_state of en_main.c: nothing is received before it is ready */
int chip_modify_rq(struct chip_call *call)
{
	struct chip_rq *rq = xa_load(&call->fn->rqs, CALL_IN(call, modify_rq_in, rqn));

	if (!rq)
		return MLX5_CMD_STAT_BAD_RES_ERR;
	rq->ready = MLX5_GET(rqc, MLX5_ADDR_OF(modify_rq_in, call->in, ctx), state) == MLX5_RQC_STATE_RDY;
	if (!rq->ready)
		rq->ci = 0;
	return 0;
}

/* A TIR names a receive queue, or a table of them of which the first is taken: there is no RSS. */
#define DIRECT	BIT(24)

int chip_set_tir(struct chip_call *call)
{
	bool new = call->op == MLX5_CMD_OP_CREATE_TIR;
	void *context = new ? MLX5_ADDR_OF(create_tir_in, call->in, ctx) : MLX5_ADDR_OF(modify_tir_in, call->in, ctx);
	u32 id = new ? chip_new_id(call->fn->pf) : CALL_IN(call, modify_tir_in, tirn);
	u32 rqn = MLX5_GET(tirc, context, inline_rqn), table = MLX5_GET(tirc, context, indirect_table);
	u32 target = MLX5_GET(tirc, context, disp_type) == MLX5_TIRC_DISP_TYPE_DIRECT ? DIRECT | rqn : table;

	if (new || rqn || table)
		xa_store(&call->fn->tirs, id, xa_mk_value(target), GFP_KERNEL);
	if (new)
		chip_answer_id(call, id);
	return 0;
}

int chip_set_rqt(struct chip_call *call)
{
	bool new = call->op == MLX5_CMD_OP_CREATE_RQT;
	void *context = new ? MLX5_ADDR_OF(create_rqt_in, call->in, rqt_context) : MLX5_ADDR_OF(modify_rqt_in, call->in, ctx);
	u32 id = new ? chip_new_id(call->fn->pf) : CALL_IN(call, modify_rqt_in, rqtn);

	xa_store(&call->fn->rqts, id, xa_mk_value(MLX5_GET(rqtc, context, rq_num[0])), GFP_KERNEL);
	if (new)
		chip_answer_id(call, id);
	return 0;
}

static u32 value_of(struct xarray *xa, u32 id)
{
	void *value = xa_load(xa, id);

	return value ? xa_to_value(value) : 0;
}

struct chip_rq *chip_tir_rq(struct chip_fn *fn, u32 tir)
{
	u32 target = value_of(&fn->tirs, tir);

	return xa_load(&fn->rqs, target & DIRECT ? target & ~DIRECT : value_of(&fn->rqts, target));
}

/* Ends. The chip may be reading a queue: in a softirq, or in chip_poll(). */

static int destroy(struct chip_call *call, struct xarray *xa, size_t pas)
{
	struct chip_pf *pf = call->fn->pf;
	void *object;

	spin_lock_bh(&pf->steering);
	spin_lock(&pf->qps_lock);
	object = xa_erase(xa, chip_asked_id(call));
	spin_unlock(&pf->qps_lock);
	spin_unlock_bh(&pf->steering);
	if (!object)
		return MLX5_CMD_STAT_BAD_RES_ERR;
	kfree(*(u64 **)(object + pas));
	kfree(object);
	return 0;
}

int chip_destroy_eq(struct chip_call *call)
{
	return destroy(call, &call->fn->eqs, offsetof(struct chip_eq, pas));
}

int chip_destroy_cq(struct chip_call *call)
{
	return destroy(call, &call->fn->cqs, offsetof(struct chip_cq, wq.pas));
}

int chip_destroy_sq(struct chip_call *call)
{
	return destroy(call, &call->fn->sqs, offsetof(struct chip_sq, wq.pas));
}

int chip_destroy_rq(struct chip_call *call)
{
	return destroy(call, &call->fn->rqs, offsetof(struct chip_rq, wq.pas));
}

static void drop(struct xarray *xa, size_t pas)
{
	unsigned long n;
	void *object;

	xa_for_each(xa, n, object) {
		xa_erase(xa, n);
		kfree(*(u64 **)(object + pas));
		kfree(object);
	}
}

void chip_drop_queues(struct chip_fn *fn)
{
	struct chip_pf *pf = fn->pf;

	spin_lock_bh(&pf->steering);
	spin_lock(&pf->qps_lock);
	drop(&fn->eqs, offsetof(struct chip_eq, pas));
	drop(&fn->cqs, offsetof(struct chip_cq, wq.pas));
	drop(&fn->sqs, offsetof(struct chip_sq, wq.pas));
	drop(&fn->rqs, offsetof(struct chip_rq, wq.pas));
	xa_destroy(&fn->tirs);
	xa_destroy(&fn->rqts);
	spin_unlock(&pf->qps_lock);
	spin_unlock_bh(&pf->steering);
}
