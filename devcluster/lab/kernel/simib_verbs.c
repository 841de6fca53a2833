// SPDX-License-Identifier: GPL-2.0
/* The queues of simib's verbs devices: objects that user space and the kernel's clients make, without traffic.
 *
 * What is sent is sent at once and arrives nowhere; only the subnet administrator answers, on QP1, so that IPoIB can
 * join its groups. Addresses of buffers are the kernel's own, as for rxe (ib_uses_virt_dma).
 */
#include <rdma/ib_mad.h>
#include <rdma/ib_sa.h>
#include "simib.h"

#define GRH 40

struct sib_recv { struct list_head list; u64 wr_id; struct ib_sge sge; };
struct sib_done { struct list_head list; struct ib_wc wc; };
struct sib_cq { struct ib_cq ib; spinlock_t lock; struct list_head done; bool armed; };
struct sib_qp {
	struct ib_qp ib;
	spinlock_t lock;
	struct list_head recvs;
	enum ib_qp_state state;
	struct ib_qp_cap cap;
};
struct sib_pd { struct ib_pd ib; };
struct sib_ah { struct ib_ah ib; struct rdma_ah_attr attr; };
struct sib_context { struct ib_ucontext ib; };
#define CQ(c) container_of(c, struct sib_cq, ib)
#define QP(q) container_of(q, struct sib_qp, ib)

/* Completion queues */

static void sib_complete(struct sib_cq *cq, const struct ib_wc *wc)
{
	struct sib_done *done = kmalloc(sizeof(*done), GFP_ATOMIC);
	unsigned long flags;
	bool wake;

	if (!done)
		return;
	done->wc = *wc;
	spin_lock_irqsave(&cq->lock, flags);
	list_add_tail(&done->list, &cq->done);
	wake = cq->armed;
	cq->armed = false;
	spin_unlock_irqrestore(&cq->lock, flags);
	if (wake && cq->ib.comp_handler)
		cq->ib.comp_handler(&cq->ib, cq->ib.cq_context);
}

static int sib_poll_cq(struct ib_cq *ibcq, int most, struct ib_wc *wc)
{
	struct sib_cq *cq = CQ(ibcq);
	struct sib_done *done, *next;
	unsigned long flags;
	int n = 0;

	spin_lock_irqsave(&cq->lock, flags);
	list_for_each_entry_safe(done, next, &cq->done, list) {
		if (n == most)
			break;
		wc[n++] = done->wc;
		list_del(&done->list);
		kfree(done);
	}
	spin_unlock_irqrestore(&cq->lock, flags);
	return n;
}

static int sib_req_notify_cq(struct ib_cq *ibcq, enum ib_cq_notify_flags how)
{
	struct sib_cq *cq = CQ(ibcq);
	unsigned long flags;
	int missed;

	spin_lock_irqsave(&cq->lock, flags);
	cq->armed = true;
	missed = (how & IB_CQ_REPORT_MISSED_EVENTS) && !list_empty(&cq->done);
	spin_unlock_irqrestore(&cq->lock, flags);
	return missed;
}

static void sib_forget(struct sib_cq *cq, const struct ib_qp *qp)	/* qp NULL: of every queue pair */
{
	struct sib_done *done, *next;
	unsigned long flags;

	spin_lock_irqsave(&cq->lock, flags);
	list_for_each_entry_safe(done, next, &cq->done, list)
		if (!qp || done->wc.qp == qp) {
			list_del(&done->list);
			kfree(done);
		}
	spin_unlock_irqrestore(&cq->lock, flags);
}

static int sib_create_cq(struct ib_cq *ibcq, const struct ib_cq_init_attr *attr, struct uverbs_attr_bundle *bundle)
{
	struct sib_cq *cq = CQ(ibcq);

	spin_lock_init(&cq->lock);
	INIT_LIST_HEAD(&cq->done);
	ibcq->cqe = attr->cqe;
	return 0;
}

static int sib_destroy_cq(struct ib_cq *ibcq, struct ib_udata *udata) { sib_forget(CQ(ibcq), NULL); return 0; }

/* Queue pairs */

static struct sib_recv *sib_next_recv(struct sib_qp *qp)
{
	struct sib_recv *recv;
	unsigned long flags;

	spin_lock_irqsave(&qp->lock, flags);
	recv = list_first_entry_or_null(&qp->recvs, struct sib_recv, list);
	if (recv)
		list_del(&recv->list);
	spin_unlock_irqrestore(&qp->lock, flags);
	return recv;
}

static void sib_end_recvs(struct sib_qp *qp, bool flush)
{
	struct ib_wc wc = { .status = IB_WC_WR_FLUSH_ERR, .opcode = IB_WC_RECV, .qp = &qp->ib };
	struct sib_recv *recv;

	while ((recv = sib_next_recv(qp))) {
		wc.wr_id = recv->wr_id;	/* one word with wr_cqe */
		if (flush)
			sib_complete(CQ(qp->ib.recv_cq), &wc);
		kfree(recv);
	}
}

static int sib_create_qp(struct ib_qp *ibqp, struct ib_qp_init_attr *attr, struct ib_udata *udata)
{
	struct sib_qp *qp = QP(ibqp);

	if (!attr->send_cq || !attr->recv_cq)
		return -EOPNOTSUPP;
	spin_lock_init(&qp->lock);
	INIT_LIST_HEAD(&qp->recvs);
	qp->state = IB_QPS_RESET;
	qp->cap = attr->cap;
	ibqp->qp_num = attr->qp_type == IB_QPT_SMI ? 0 : attr->qp_type == IB_QPT_GSI ? 1 :
		       atomic_inc_return(&DEV(ibqp->device)->next_qpn);
	return 0;
}

static int sib_modify_qp(struct ib_qp *ibqp, struct ib_qp_attr *attr, int mask, struct ib_udata *udata)
{
	struct sib_qp *qp = QP(ibqp);

	if (!(mask & IB_QP_STATE))
		return 0;
	qp->state = attr->qp_state;
	if (qp->state == IB_QPS_ERR || qp->state == IB_QPS_RESET)
		sib_end_recvs(qp, qp->state == IB_QPS_ERR);
	return 0;
}

static int sib_query_qp(struct ib_qp *ibqp, struct ib_qp_attr *attr, int mask, struct ib_qp_init_attr *init)
{
	struct sib_qp *qp = QP(ibqp);

	if (sib_query_qp_errno)
		return -(int)sib_query_qp_errno;
	attr->qp_state = attr->cur_qp_state = qp->state;
	attr->cap = init->cap = qp->cap;
	attr->port_num = 1;
	init->qp_type = ibqp->qp_type;
	init->send_cq = ibqp->send_cq;
	init->recv_cq = ibqp->recv_cq;
	return 0;
}

static int sib_destroy_qp(struct ib_qp *ibqp, struct ib_udata *udata)
{
	sib_end_recvs(QP(ibqp), false);
	sib_forget(CQ(ibqp->send_cq), ibqp);
	sib_forget(CQ(ibqp->recv_cq), ibqp);
	return 0;
}

static int sib_post_recv(struct ib_qp *ibqp, const struct ib_recv_wr *wr, const struct ib_recv_wr **bad)
{
	struct sib_qp *qp = QP(ibqp);
	unsigned long flags;

	for (; wr; wr = wr->next) {
		struct sib_recv *recv = kmalloc(sizeof(*recv), GFP_ATOMIC);

		if (!recv) {
			if (bad)
				*bad = wr;
			return -ENOMEM;
		}
		recv->wr_id = wr->wr_id;
		recv->sge = wr->num_sge ? wr->sg_list[0] : (struct ib_sge){ };
		spin_lock_irqsave(&qp->lock, flags);
		list_add_tail(&recv->list, &qp->recvs);
		spin_unlock_irqrestore(&qp->lock, flags);
		if (qp->state == IB_QPS_ERR)
			sib_end_recvs(qp, true);
	}
	return 0;
}

/* The subnet administrator's answer to a request on QP1, in place; false: it has none. */
static bool sib_administer(struct ib_mad_hdr *hdr)
{
	struct ib_sa_mad *mad = (struct ib_sa_mad *)hdr;
	u8 *group = mad->data;	/* MCMemberRecord, IBA 15.2.5.17 */

	if (hdr->mgmt_class != IB_MGMT_CLASS_SUBN_ADM)
		return false;
	if (hdr->attr_id == cpu_to_be16(IB_SA_ATTR_MC_MEMBER_REC) && hdr->method == IB_MGMT_METHOD_SET) {
		memcpy(group + 32, "\x00\x00\x0b\x1b", 4);	/* Q_Key */
		memcpy(group + 36, "\xc0\x00", 2);		/* MLID */
		group[38] = IB_SA_EQ << 6 | IB_MTU_4096;
		group[42] = IB_SA_EQ << 6 | IB_RATE_100_GBPS;
		group[43] = IB_SA_EQ << 6 | 18;
		group[48] |= 0x20;				/* link-local scope */
		hdr->method = IB_MGMT_METHOD_GET_RESP;
	} else if (hdr->attr_id == cpu_to_be16(IB_SA_ATTR_MC_MEMBER_REC) && hdr->method == IB_SA_METHOD_DELETE) {
		hdr->method = IB_SA_METHOD_DELETE_RESP;
	} else if (hdr->attr_id == cpu_to_be16(IB_SA_ATTR_CLASS_PORTINFO) && hdr->method == IB_MGMT_METHOD_GET) {
		memset(mad->data, 0, sizeof(mad->data));
		hdr->method = IB_MGMT_METHOD_GET_RESP;
	} else {
		return false;
	}
	mad->sa_hdr.attr_offset = cpu_to_be16(7);
	return true;
}

static void sib_ask_sm(struct sib_qp *qp, const struct ib_send_wr *wr)
{
	u8 mad[IB_MGMT_MAD_SIZE] = { };
	struct ib_wc wc = {
		.status = IB_WC_SUCCESS, .opcode = IB_WC_RECV, .qp = &qp->ib, .byte_len = GRH + sizeof(mad),
		.src_qp = 1, .slid = 1, .port_num = 1,
	};
	struct sib_recv *recv;
	size_t at = 0;
	int i;

	for (i = 0; i < wr->num_sge && at < sizeof(mad); i++) {
		size_t n = min_t(size_t, wr->sg_list[i].length, sizeof(mad) - at);

		memcpy(mad + at, ib_virt_dma_to_ptr(wr->sg_list[i].addr), n);
		at += n;
	}
	if (DEV(qp->ib.device)->state != IB_PORT_ACTIVE || !sib_administer((struct ib_mad_hdr *)mad))
		return;
	recv = sib_next_recv(qp);
	if (!recv)
		return;
	if (recv->sge.length >= wc.byte_len)
		memcpy(ib_virt_dma_to_ptr(recv->sge.addr) + GRH, mad, sizeof(mad));
	wc.wr_id = recv->wr_id;
	sib_complete(CQ(qp->ib.recv_cq), &wc);
	kfree(recv);
}

/* Everything is sent and nothing arrives, but at the subnet administrator. */
static int sib_post_send(struct ib_qp *ibqp, const struct ib_send_wr *wr, const struct ib_send_wr **bad)
{
	for (; wr; wr = wr->next) {
		struct ib_wc wc = { .status = IB_WC_SUCCESS, .opcode = IB_WC_SEND, .qp = ibqp };

		wc.wr_id = wr->wr_id;
		sib_complete(CQ(ibqp->send_cq), &wc);
		if (ibqp->qp_type == IB_QPT_GSI)
			sib_ask_sm(QP(ibqp), wr);
	}
	return 0;
}

static int sib_mcast(struct ib_qp *qp, union ib_gid *gid, u16 lid) { return 0; }

/* Objects without anything behind them */

static int sib_alloc_context(struct ib_ucontext *context, struct ib_udata *udata) { return 0; }
static void sib_dealloc_context(struct ib_ucontext *context) { }
static int sib_alloc_pd(struct ib_pd *pd, struct ib_udata *udata) { return 0; }
static int sib_dealloc_pd(struct ib_pd *pd, struct ib_udata *udata) { return 0; }
static int sib_create_ah(struct ib_ah *ah, struct rdma_ah_init_attr *init, struct ib_udata *udata)
{
	struct rdma_ah_attr *attr = &container_of(ah, struct sib_ah, ib)->attr;

	*attr = *init->ah_attr;
	attr->grh.sgid_attr = NULL;	/* the caller's reference */
	return 0;
}
/* ib_mad matches an answer with its request by the request's address. */
static int sib_query_ah(struct ib_ah *ah, struct rdma_ah_attr *attr)
{ *attr = container_of(ah, struct sib_ah, ib)->attr; return 0; }
static int sib_destroy_ah(struct ib_ah *ah, u32 flags) { return 0; }
static struct ib_mr *sib_mr(void)
{
	struct ib_mr *mr = kzalloc(sizeof(*mr), GFP_KERNEL);

	return mr ? mr : ERR_PTR(-ENOMEM);
}
static struct ib_mr *sib_dma_mr(struct ib_pd *pd, int access) { return sib_mr(); }
static struct ib_mr *sib_user_mr(struct ib_pd *pd, u64 start, u64 length, u64 virt, int access, struct ib_udata *udata)
{ return sib_mr(); }
static int sib_dereg_mr(struct ib_mr *mr, struct ib_udata *udata) { kfree(mr); return 0; }

/* A process's objects are taken away when the device moves or goes: mlx5_ib_disassociate_ucontext. */
static void sib_disassociate(struct ib_ucontext *context) { }

const struct ib_device_ops sib_queue_ops = {
	.alloc_pd = sib_alloc_pd, .alloc_ucontext = sib_alloc_context, .attach_mcast = sib_mcast,
	.create_ah = sib_create_ah, .create_user_ah = sib_create_ah, .create_cq = sib_create_cq,
	.create_qp = sib_create_qp, .dealloc_pd = sib_dealloc_pd, .dealloc_ucontext = sib_dealloc_context,
	.dereg_mr = sib_dereg_mr, .destroy_ah = sib_destroy_ah, .destroy_cq = sib_destroy_cq,
	.destroy_qp = sib_destroy_qp, .detach_mcast = sib_mcast, .disassociate_ucontext = sib_disassociate,
	.get_dma_mr = sib_dma_mr, .modify_qp = sib_modify_qp, .poll_cq = sib_poll_cq, .post_recv = sib_post_recv,
	.post_send = sib_post_send, .query_ah = sib_query_ah, .query_qp = sib_query_qp, .reg_user_mr = sib_user_mr,
	.req_notify_cq = sib_req_notify_cq,
	INIT_RDMA_OBJ_SIZE(ib_ah, sib_ah, ib), INIT_RDMA_OBJ_SIZE(ib_cq, sib_cq, ib),
	INIT_RDMA_OBJ_SIZE(ib_pd, sib_pd, ib), INIT_RDMA_OBJ_SIZE(ib_qp, sib_qp, ib),
	INIT_RDMA_OBJ_SIZE(ib_ucontext, sib_context, ib),
};
