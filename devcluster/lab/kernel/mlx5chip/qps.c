// SPDX-License-Identifier: GPL-2.0
/* Queue pairs and memory keys: how they are made, and the doorbells that processes ring. */
#include <linux/delay.h>
#include <linux/etherdevice.h>
#include <linux/kthread.h>
#include <linux/mlx5/cq.h>
#include <linux/mlx5/qp.h>
#include <linux/moduleparam.h>
#include <linux/slab.h>
#include <linux/unaligned.h>
#include "chip.h"

#define ALL_MEMORY	0xff	/* chip_query_special() */
#define ENHANCED_IPOIB	2	/* MLX5_QP_ENHANCED_ULP_STATELESS_MODE of ipoib/ipoib.c */
#define KERNELS_INDEX	0xffffff	/* MLX5_IB_DEFAULT_UIDX of drivers/infiniband/hw/mlx5/mlx5_ib.h */

struct mkey {
	struct chip_fn *fn;
	u64 start, len;
	bool physical;
	u32 log_page, npas;
	u64 *pas;
};

/* mlx5_core_create_mkey of mr.c: the mailbox of reg_create of drivers/infiniband/hw/mlx5/mr.c and of physical keys */
int chip_create_mkey(struct chip_call *call)
{
	void *context = MLX5_ADDR_OF(create_mkey_in, call->in, memory_key_mkey_entry);
	u32 wanted = CALL_IN(call, create_mkey_in, translations_octword_actual_size) * 2;
	u32 sent = (call->inlen - MLX5_ST_SZ_BYTES(create_mkey_in)) / sizeof(u64), i;
	struct mkey *key = kzalloc(sizeof(*key), GFP_KERNEL);
	u32 id = chip_new_id(call->fn->pf);

	if (!key)
		return MLX5_CMD_STAT_NO_RES_ERR;
	key->start = MLX5_GET64(mkc, context, start_addr);
	key->len = MLX5_GET(mkc, context, length64) ? ~0ULL : MLX5_GET64(mkc, context, len);
	key->physical = !MLX5_GET(mkc, context, access_mode_1_0) && !MLX5_GET(mkc, context, access_mode_4_2);
	key->log_page = MLX5_GET(mkc, context, log_page_size);
	key->npas = min(wanted, sent);
	key->pas = kvmalloc_array(key->npas + 1, sizeof(u64), GFP_KERNEL);
	if (!key->pas) {
		kfree(key);
		return MLX5_CMD_STAT_NO_RES_ERR;
	}
	for (i = 0; i < key->npas; i++)
		key->pas[i] = get_unaligned_be64(MLX5_ADDR_OF(create_mkey_in, call->in, klm_pas_mtt) + i * sizeof(u64)) & ~0xfffULL;
	xa_store(&call->fn->mkeys, id, key, GFP_KERNEL);
	chip_answer_id(call, id);
	return 0;
}

static void free_mkey(struct mkey *key)
{
	if (key)
		kvfree(key->pas);
	kfree(key);
}

int chip_destroy_mkey(struct chip_call *call)
{
	struct chip_fn *fn = call->fn;
	struct mkey *key;

	spin_lock_bh(&fn->pf->qps_lock);
	key = xa_erase(&fn->mkeys, CALL_IN(call, destroy_mkey_in, mkey_index));
	spin_unlock_bh(&fn->pf->qps_lock);
	free_mkey(key);
	return key ? 0 : MLX5_CMD_STAT_BAD_RES_ERR;
}

/* Memory at an address of a key, and how much of it lies there in one piece. NULL: not of this key. */
static void *memory(struct chip_fn *fn, u32 number, u64 va, u32 *room)
{
	struct mkey *key = xa_load(&fn->mkeys, number >> 8);
	u64 offset, size;

	*room = ~0u;
	if (number >> 8 == ALL_MEMORY)
		return __va(va);
	if (!key || va < key->start || va - key->start >= key->len)
		return NULL;
	if (key->physical)
		return __va(va);
	size = 1ULL << key->log_page;
	offset = va - key->start + (key->start & (size - 1));
	if (offset >> key->log_page >= key->npas)
		return NULL;
	*room = size - (offset & (size - 1));
	return __va(key->pas[offset >> key->log_page] + (offset & (size - 1)));
}

/* Between the memory of a key and other[]. False: part of it is not of the key. */
bool chip_copy(struct chip_fn *fn, u32 key, u64 va, u8 *other, u32 len, bool to_memory)
{
	while (len) {
		u32 room, n;
		void *at = memory(fn, key, va, &room);

		if (!at) {
			chip_say(1, "vf %d: %u bytes at %#llx are not of key %#x\n", fn->vf, len, va, key);
			return false;
		}
		n = min(room, len);
		if (to_memory)
			memcpy(at, other, n);
		else
			memcpy(other, at, n);
		va += n;
		other += n;
		len -= n;
	}
	return true;
}

/* mlx5_core_roce_gid_set of lib/gid.c */
int chip_set_gid(struct chip_call *call)
{
	u32 index = CALL_IN(call, set_roce_address_in, roce_address_index);
	void *copy = kmemdup(MLX5_ADDR_OF(set_roce_address_in, call->in, roce_address), MLX5_ST_SZ_BYTES(roce_addr_layout),
			     GFP_KERNEL), *old;

	if (!copy)
		return MLX5_CMD_STAT_NO_RES_ERR;
	old = xa_store(&call->fn->gids, index, copy, GFP_KERNEL);
	kfree(xa_is_err(old) ? NULL : old);
	return 0;
}

void chip_gid(struct chip_fn *fn, u32 index, u8 *gid, u8 *mac)
{
	void *address = xa_load(&fn->gids, index);

	memset(gid, 0, 16);
	eth_zero_addr(mac);
	if (!address)
		return;
	memcpy(gid, MLX5_ADDR_OF(roce_addr_layout, address, source_l3_address), 16);
	memcpy(mac, MLX5_ADDR_OF(roce_addr_layout, address, source_mac_47_32), ETH_ALEN);
}

/* A receive queue comes before the send queue in the same pages: _create_kernel_qp of ib: qp.c. */
static void take_queues(struct chip_qp *qp, struct chip_call *call, void *context)
{
	u32 log_stride = MLX5_GET(qpc, context, log_rq_stride) + 4, bytes = 0;

	if (MLX5_GET(qpc, context, rq_type) == MLX5_NON_ZERO_RQ)
		bytes = 1 << (MLX5_GET(qpc, context, log_rq_size) + log_stride);
	qp->rq.log_size = MLX5_GET(qpc, context, log_rq_size);
	qp->rq.log_stride = log_stride;
	qp->rq.log_page = MLX5_GET(qpc, context, log_page_size) + 12;
	qp->rq.offset = chip_page_offset(MLX5_GET(qpc, context, page_offset), qp->rq.log_page);
	qp->rq.dbr = MLX5_GET64(qpc, context, dbr_addr);
	chip_take_pas(&qp->rq.pas, &qp->rq.npas, MLX5_ADDR_OF(create_qp_in, call->in, pas), call->in + call->inlen);
	qp->sq = qp->rq;
	qp->sq.log_size = MLX5_GET(qpc, context, log_sq_size);
	qp->sq.log_stride = ilog2(MLX5_SEND_WQE_BB);
	qp->sq.offset += bytes;
}

/* Functions whose IPoIB netdev cannot be made, as where ib_ipoib is not loaded: 1 PFs, 2 VFs. */
static unsigned int no_ipoib;
module_param(no_ipoib, uint, 0644);

/* The queue pair below an IPoIB netdev: mlx5i_create_underlay_qp of ipoib/ipoib.c */
static bool lies_below_ipoib(void *context)
{
	return MLX5_GET(qpc, context, ulp_stateless_offload_mode) == ENHANCED_IPOIB;
}

/* create_user_qp and create_kernel_qp of drivers/infiniband/hw/mlx5/qp.c; mlx5i_create_underlay_qp has no queues */
int chip_create_qp(struct chip_call *call)
{
	void *context = MLX5_ADDR_OF(create_qp_in, call->in, qpc);
	struct chip_qp *qp;

	if (lies_below_ipoib(context) && no_ipoib & (chip_is_pf(call->fn) ? 1 : 2))
		return MLX5_CMD_STAT_NO_RES_ERR;
	qp = kzalloc(sizeof(*qp), GFP_KERNEL);
	if (!qp)
		return MLX5_CMD_STAT_NO_RES_ERR;
	qp->qpn = 0x4000 + chip_new_id(call->fn->pf);
	qp->fn = call->fn;
	qp->type = MLX5_GET(qpc, context, st);
	qp->deth = MLX5_GET(qpc, context, deth_sqpn);
	qp->user_index = MLX5_GET(qpc, context, user_index);
	qp->cqn_snd = MLX5_GET(qpc, context, cqn_snd);
	qp->cqn_rcv = MLX5_GET(qpc, context, cqn_rcv);
	memcpy(qp->context, context, sizeof(qp->context));
	take_queues(qp, call, context);
	qp->user = qp->sq.dbr && (CALL_IN(call, create_qp_in, uid) || qp->user_index != KERNELS_INDEX);
	xa_store(&call->fn->pf->qps, qp->qpn, qp, GFP_KERNEL);
	chip_answer_id(call, qp->qpn);
	return 0;
}

static int state_after(u16 op)
{
	switch (op) {
	case MLX5_CMD_OP_RST2INIT_QP:
	case MLX5_CMD_OP_INIT2INIT_QP:
		return MLX5_QP_STATE_INIT;
	case MLX5_CMD_OP_INIT2RTR_QP:
		return MLX5_QP_STATE_RTR;
	case MLX5_CMD_OP_2ERR_QP:
		return MLX5_QP_STATE_ERR;
	case MLX5_CMD_OP_2RST_QP:
		return MLX5_QP_STATE_RST;
	}
	return MLX5_QP_STATE_RTS;
}

/* All these commands have the queue pair and its context at one place. */
int chip_modify_qp(struct chip_call *call)
{
	void *context = MLX5_ADDR_OF(rst2init_qp_in, call->in, qpc);
	struct chip_pf *pf = call->fn->pf;
	struct chip_qp *qp = xa_load(&pf->qps, CALL_IN(call, rst2init_qp_in, qpn));

	if (!qp || qp->fn != call->fn)
		return MLX5_CMD_STAT_BAD_RES_ERR;
	spin_lock_bh(&pf->qps_lock);
	qp->state = state_after(call->op);
	MLX5_SET(qpc, qp->context, state, qp->state);
	if (MLX5_GET(qpc, context, cqn_snd))
		qp->cqn_snd = MLX5_GET(qpc, context, cqn_snd);
	if (MLX5_GET(qpc, context, cqn_rcv))
		qp->cqn_rcv = MLX5_GET(qpc, context, cqn_rcv);
	if (MLX5_GET(qpc, context, remote_qpn))
		qp->remote = MLX5_GET(qpc, context, remote_qpn);
	if (qp->state == MLX5_QP_STATE_RTR) {
		memcpy(qp->rmac, MLX5_ADDR_OF(qpc, context, primary_address_path.rmac_47_32), ETH_ALEN);
		qp->gid = MLX5_GET(qpc, context, primary_address_path.src_addr_index);
	}
	if (qp->state == MLX5_QP_STATE_RST)
		qp->sq_ci = qp->rq_ci = 0;
	if (qp->state == MLX5_QP_STATE_ERR && qp->sq.dbr)
		chip_advance(qp);
	spin_unlock_bh(&pf->qps_lock);
	return 0;
}

int chip_query_qp(struct chip_call *call)
{
	struct chip_qp *qp = xa_load(&call->fn->pf->qps, CALL_IN(call, query_qp_in, qpn));

	if (!qp || qp->fn != call->fn)
		return MLX5_CMD_STAT_BAD_RES_ERR;
	memcpy(MLX5_ADDR_OF(query_qp_out, call->out, qpc), qp->context, sizeof(qp->context));
	return 0;
}

static void free_qp(struct chip_qp *qp)
{
	if (qp)
		kfree(qp->rq.pas);
	kfree(qp);
}

int chip_destroy_qp(struct chip_call *call)
{
	struct chip_pf *pf = call->fn->pf;
	struct chip_qp *qp;

	spin_lock_bh(&pf->qps_lock);
	qp = xa_erase(&pf->qps, CALL_IN(call, destroy_qp_in, qpn));
	spin_unlock_bh(&pf->qps_lock);
	free_qp(qp);
	return qp ? 0 : MLX5_CMD_STAT_BAD_RES_ERR;
}

void chip_drop_qps(struct chip_fn *fn)
{
	struct chip_pf *pf = fn->pf;
	struct mkey *key;
	struct chip_qp *qp;
	unsigned long n;

	spin_lock_bh(&pf->qps_lock);
	xa_for_each(&pf->qps, n, qp)
		if (qp->fn == fn) {
			xa_erase(&pf->qps, n);
			free_qp(qp);
		}
	xa_for_each(&fn->mkeys, n, key) {
		xa_erase(&fn->mkeys, n);
		free_mkey(key);
	}
	spin_unlock_bh(&pf->qps_lock);
}

/* A doorbell of the kernel. */
void chip_ring_qp(struct chip_fn *fn, u32 qpn)
{
	struct chip_qp *qp = xa_load(&fn->pf->qps, qpn);

	if (!qp || !qp->sq.dbr)
		return;
	spin_lock_bh(&fn->pf->qps_lock);
	chip_advance(qp);
	spin_unlock_bh(&fn->pf->qps_lock);
}

/*
 * Doorbells of processes land in the pages that they map, where nothing traps: doorbell records of their queues, and the
 * words with which they arm completion queues, are read again and again while processes have queue pairs.
 */
static unsigned int poll_us = 200;
module_param(poll_us, uint, 0644);

static void poll_doorbell_pages(struct chip_fn *fn)
{
	unsigned long n;

	for_each_set_bit(n, fn->uars, CHIP_UARS) {
		__be32 *doorbell = (void *)fn->bar + n * PAGE_SIZE + MLX5_CQ_DOORBELL;

		if (!fn->bar || !doorbell[1])
			continue;
		chip_arm_cq(fn, be32_to_cpu(doorbell[1]) & 0xffffff, be32_to_cpu(doorbell[0]));
		doorbell[0] = doorbell[1] = 0;
	}
}

static bool poll_once(struct chip_pf *pf)
{
	struct chip_qp *qp;
	struct chip_cq *cq;
	bool any = false;
	unsigned long n;
	int vport;

	xa_for_each(&pf->qps, n, qp) {
		if (!qp->user)
			continue;
		any = true;
		chip_advance(qp);
	}
	for (vport = 0; any && vport <= CHIP_MAX_VFS; vport++) {
		struct chip_fn *fn = chip_function(pf, vport);

		if (!fn || !fn->initialized)
			continue;
		xa_for_each(&fn->cqs, n, cq)
			chip_poll_cq_record(fn, cq);
		poll_doorbell_pages(fn);
	}
	return any;
}

int chip_poll(void *data)
{
	struct chip_pf *pf = data;
	bool any;

	while (!kthread_should_stop()) {
		spin_lock_bh(&pf->qps_lock);
		any = poll_once(pf);
		spin_unlock_bh(&pf->qps_lock);
		if (any)
			usleep_range(poll_us, poll_us + 50);
		else
			msleep(50);
	}
	return 0;
}
