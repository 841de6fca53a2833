/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A modelled ConnectX: what the unmodified mlx5_core and mlx5_ib of Linux 6.12 find on the PCI bus of the lab's kernel.
 *
 *   pci.c        host bridge, configuration space, SR-IOV, MSI-X, which function an address of a BAR belongs to
 *   registers.c  BAR0: initialization segment, command queue with its mailboxes, doorbells
 *   commands.c   the table of commands; faults
 *   caps.c       QUERY_HCA_CAP
 *   functions.c  life of a function, its pages and doorbell pages
 *   ports.c      the port and its registers
 *   vports.c     contexts and states of vports, on Ethernet and InfiniBand
 *   rates.c      scheduling elements, as written: nothing is shaped
 *   queues.c     event, completion, send and receive queues, and where received frames go
 *   ethernet.c   frames of the netdevs' queues; checksums and segments
 *   steering.c   flow tables as the driver writes them, and the walk through them
 *   headers.c    a frame as a match sees it
 *   switch.c     the path of a frame from function to function
 *   wire.c       wireN, the netdev at the other end of a port's cable
 *   qps.c        queue pairs and memory keys
 *   rc.c         work requests of queue pairs
 *   datagrams.c  datagrams: rdma_cm between functions, and a subnet administrator
 *   report.c     what the firmware has, for tests: /sys/module/mlx5chip/parameters, /proc/mlx5chip
 *
 * Layouts are those of include/linux/mlx5/mlx5_ifc.h and device.h, which the drivers are compiled with. Where a reply
 * matters, a comment names the function that reads it, in drivers/net/ethernet/mellanox/mlx5/core unless another place
 * is named. "Remembered" marks what has no source but the author's memory of such cards. Remembered everywhere: which
 * error status a refused command has. The drivers tell few apart: BAD_OP_ERR, BAD_PARAM_ERR and BAD_RES_ERR are EINVAL,
 * NO_RES_ERR is EAGAIN, BAD_INP_LEN_ERR is EIO (cmd_status_to_err of cmd.c).
 */
#ifndef MLX5CHIP_H
#define MLX5CHIP_H

#include <linux/mlx5/device.h>
#include <linux/mlx5/driver.h>
#include <linux/pci.h>
#include <linux/xarray.h>

#define CHIP_BAR_SIZE	0x200000UL
#define CHIP_CFG_SIZE	4096
#define CHIP_MSIX	0x90
#define CHIP_MSIX_TABLE	0x3000
#define CHIP_MSIX_PBA	0x3800
#define CHIP_VECTORS	16
#define CHIP_SRIOV	0x100
#define CHIP_FIRST_UAR	16
#define CHIP_UARS	(CHIP_BAR_SIZE / PAGE_SIZE)
#define CHIP_MAX_PFS	4
#define CHIP_MAX_VFS	128
#define CHIP_CAP_TYPES	0x30
#define CHIP_LIST_MAX	128
/* Frames of 1500 bytes with a VLAN tag and the checksum that follows, until the driver sets PMTU. */
#define CHIP_FRAME	1522
/* Remembered: netdevs of such cards take MTUs up to 9978, which are frames of so many bytes (MLX5E_HW2SW_MTU of en.h). */
#define CHIP_LARGEST_FRAME	10000

struct chip_pf;
struct seq_file;

struct chip_wq {
	u32 log_size, log_stride, log_page, offset;
	u64 dbr;
	u64 *pas;
	u32 npas;
};

struct chip_eq {
	u32 eqn, log_size, intr, pi, ci;
	bool armed;
	u64 mask[4];
	u64 *pas;
	u32 npas;
};

struct chip_cq {
	u32 cqn, eqn, pi, ci, log_cqe, arm_seen;
	bool armed;
	struct chip_wq wq;
};

struct chip_fn;

struct chip_sq {
	u32 sqn, cqn;
	u16 ci;
	struct chip_wq wq;
	struct chip_fn *fn;
};

struct chip_rq {
	u32 rqn, cqn;
	u16 ci;
	bool ready;
	struct chip_wq wq;
};

struct chip_qp {
	u32 qpn, user_index, deth, cqn_snd, cqn_rcv, remote, gid;
	u8 type, state, rmac[6];
	u16 sq_ci, rq_ci;
	bool user;	/* its doorbells are rung by a process */
	u32 context[MLX5_ST_SZ_DW(qpc)];
	struct chip_wq sq, rq;
	struct chip_fn *fn;
};

/* Lists of a NIC vport context, by enum mlx5_list_type. */
enum { CHIP_UNICAST, CHIP_MULTICAST, CHIP_VLANS, CHIP_LISTS };

struct chip_vport {
	u32 nic[MLX5_ST_SZ_DW(nic_vport_context)];
	u64 list[CHIP_LISTS][CHIP_LIST_MAX];	/* as in the context */
	u16 listed[CHIP_LISTS];
	u32 esw[MLX5_ST_SZ_DW(esw_vport_context)];
	u32 hca[MLX5_ST_SZ_DW(hca_vport_context)];
	u8 admin;	/* MLX5_VPORT_ADMIN_STATE_* */
	u8 ib_state;	/* enum ib_port_state */
	bool armed;	/* the PF is to be told of the next change */
	u32 element, share, max_bw;	/* in rate scheduling, if element is not 0 */
	u64 rx_packets, rx_bytes, tx_packets, tx_bytes;		/* of netdevs */
	u64 rdma_rx_packets, rdma_rx_bytes, rdma_tx_packets, rdma_tx_bytes;
};

struct chip_fn {
	struct chip_pf *pf;
	int vf;		/* -1: the PF itself */
	u8 cfg[CHIP_CFG_SIZE];
	u32 msix[CHIP_VECTORS * 4];
	DECLARE_BITMAP(uars, CHIP_UARS);
	u8 *bar;	/* BAR0's memory, which processes map; NULL without chip_bars= */
	u64 cmdq;
	u32 cmdq_high;
	bool initialized;
	struct xarray eqs, cqs, sqs, rqs, tirs, rqts, mkeys, gids, registers;
	void *cap[CHIP_CAP_TYPES];	/* what SET_HCA_CAP wrote */
	u64 *pages;
	u32 npages, room;
	spinlock_t lock;	/* event queues */
};

struct chip_pf {
	int index;
	struct chip_fn fn;
	struct chip_fn *vf[CHIP_MAX_VFS];
	struct chip_vport vport[CHIP_MAX_VFS + 1];	/* 0: the PF's */
	struct chip_vport uplink;
	struct net_device *wire;
	u32 next_id, frame_max, elements;
	bool port_up;
	spinlock_t steering;	/* flow tables and what walks through them */
	struct xarray tables, groups, roots;
	spinlock_t qps_lock;	/* queue pairs, memory keys */
	struct xarray qps;
	struct delayed_work subnet_manager;
};

/* A command on its way: mailboxes as the driver wrote them and will read them. */
struct chip_call {
	struct chip_fn *fn;
	u16 op, mod;
	void *in, *out;
	u32 inlen, outlen;
};

#define CALL_IN(call, type, field)		MLX5_GET(type, (call)->in, field)
#define CALL_OUT(call, type, field, value)	MLX5_SET(type, (call)->out, field, value)

extern int chip_npf;
extern int chip_trace;
extern unsigned int chip_infiniband;
extern struct chip_pf *chip_pfs[CHIP_MAX_PFS];

static inline bool chip_is_ib(const struct chip_pf *pf)
{
	return chip_infiniband >> pf->index & 1;
}

static inline int chip_vport_number(const struct chip_fn *fn)
{
	return fn->vf + 1;
}

static inline bool chip_is_pf(const struct chip_fn *fn)
{
	return fn->vf < 0;
}

static inline u32 chip_new_id(struct chip_pf *pf)
{
	return 0x100 + pf->next_id++;
}

/* Where the number of a new object is in every such reply, and of the object in a command that destroys one. */
static inline void chip_answer_id(struct chip_call *call, u32 id)
{
	((__be32 *)call->out)[2] = cpu_to_be32(id);
}

static inline u32 chip_asked_id(struct chip_call *call)
{
	return be32_to_cpu(((__be32 *)call->in)[2]) & 0xffffff;
}

/* What a command or doorbell trace shows, at this level of detail. */
#define chip_say(level, ...)				\
	do {						\
		if (chip_trace >= (level))		\
			pr_info("mlx5chip: " __VA_ARGS__);	\
	} while (0)

/* pci.c */
void chip_raise(struct chip_fn *fn, u32 vector);
int chip_numvfs(struct chip_pf *pf);

/* registers.c */
unsigned long chip_read(void *priv, unsigned int offset, int size);
void chip_write(void *priv, unsigned int offset, int size, unsigned long value);

/* commands.c */
/* What becomes of the next command: whether it has its effect, and when its answer comes. */
struct chip_verdict {
	bool effect, answered;
	u8 status;
	unsigned int late_ms;
};
struct chip_verdict chip_judge(struct chip_fn *fn, u16 op);
int chip_run(struct chip_call *call);

/* caps.c */
int chip_query_caps(struct chip_call *call);
int chip_set_caps(struct chip_call *call);

/* functions.c */
struct chip_fn *chip_function(struct chip_pf *pf, int vport);
void chip_fn_init(struct chip_fn *fn, struct chip_pf *pf, int vf);
void chip_fn_reset(struct chip_fn *fn);
int chip_init_hca(struct chip_call *call);
int chip_teardown_hca(struct chip_call *call);
int chip_query_issi(struct chip_call *call);
int chip_query_pages(struct chip_call *call);
int chip_manage_pages(struct chip_call *call);
int chip_query_adapter(struct chip_call *call);
int chip_query_special(struct chip_call *call);
int chip_alloc_uar(struct chip_call *call);
int chip_dealloc_uar(struct chip_call *call);

/* ports.c */
int chip_access_register(struct chip_call *call);

/* vports.c */
struct chip_vport *chip_vport(struct chip_pf *pf, int vport);
bool chip_vport_up(struct chip_pf *pf, int vport);
void chip_count_rdma(struct chip_fn *from, struct chip_fn *to, u32 len);
void chip_port_event(struct chip_pf *pf, int vport);
void chip_subnet_manager(struct work_struct *work);
void chip_vports_init(struct chip_pf *pf);
int chip_query_nic_vport(struct chip_call *call);
int chip_modify_nic_vport(struct chip_call *call);
int chip_modify_esw_vport(struct chip_call *call);
int chip_query_hca_vport(struct chip_call *call);
int chip_modify_hca_vport(struct chip_call *call);
int chip_query_gid(struct chip_call *call);
int chip_query_pkey(struct chip_call *call);
int chip_query_vport_state(struct chip_call *call);
int chip_modify_vport_state(struct chip_call *call);
int chip_query_vport_counter(struct chip_call *call);

/* rates.c */
int chip_create_element(struct chip_call *call);
int chip_modify_element(struct chip_call *call);
int chip_destroy_element(struct chip_call *call);

/* queues.c */
void chip_event(struct chip_fn *fn, u8 type, u8 subtype, const void *data, size_t len);
void chip_eq_doorbell(struct chip_fn *fn, u32 value, bool arm);
void chip_arm_cq(struct chip_fn *fn, u32 cqn, u32 ci);
void chip_poll_cq_record(struct chip_fn *fn, struct chip_cq *cq);
struct mlx5_cqe64 *chip_next_cqe(struct chip_cq *cq);
void chip_complete(struct chip_fn *fn, struct chip_cq *cq, struct mlx5_cqe64 *cqe, u8 opcode);
void chip_take_pas(u64 **pas, u32 *npas, const void *list, const void *end);
void *chip_wq_at(struct chip_wq *wq, u64 offset);
/* In 64ths of a page: __mlx5_umem_find_best_quantized_pgoff of drivers/infiniband/hw/mlx5/mem.c */
static inline u32 chip_page_offset(u32 quantized, u32 log_page)
{
	return quantized << (log_page - 6);
}
u16 chip_producer(const struct chip_wq *wq, int index);
struct chip_rq *chip_tir_rq(struct chip_fn *fn, u32 tir);
int chip_create_eq(struct chip_call *call);
int chip_create_cq(struct chip_call *call);
int chip_create_sq(struct chip_call *call);
int chip_create_rq(struct chip_call *call);
int chip_modify_rq(struct chip_call *call);
int chip_set_tir(struct chip_call *call);
int chip_set_rqt(struct chip_call *call);
int chip_destroy_eq(struct chip_call *call);
int chip_destroy_cq(struct chip_call *call);
int chip_destroy_sq(struct chip_call *call);
int chip_destroy_rq(struct chip_call *call);
void chip_drop_queues(struct chip_fn *fn);

/* ethernet.c */
void chip_ring_sq(struct chip_sq *sq);
void chip_receive(struct chip_fn *fn, u32 tir, u32 tag, const u8 *frame, u32 len);

/* steering.c */
/* enum fs_flow_table_type of fs_core.h */
enum { CHIP_NIC_RX = 0, CHIP_EGRESS_ACL = 2, CHIP_INGRESS_ACL = 3, CHIP_FDB = 4 };
enum chip_walk { CHIP_DROP, CHIP_ALLOW, CHIP_NO_RULE, CHIP_NO_TABLE, CHIP_FORWARD };
struct chip_dest {
	u8 type;
	u32 id, tag;
};
#define CHIP_OUTER	64	/* bytes of a match: outer headers, then miscellaneous parameters */
#define CHIP_MATCH	128
void chip_drop_steering(struct chip_fn *fn);
enum chip_walk chip_walk(struct chip_pf *pf, u8 type, int vport, const u8 *match, struct chip_dest *to, u32 *n, u32 max);
int chip_entries(struct chip_pf *pf, u8 type, int vport);
void chip_show_steering(struct seq_file *to, struct chip_pf *pf);
int chip_create_table(struct chip_call *call);
int chip_modify_table(struct chip_call *call);
int chip_destroy_table(struct chip_call *call);
int chip_set_root(struct chip_call *call);
int chip_create_group(struct chip_call *call);
int chip_destroy_group(struct chip_call *call);
int chip_set_entry(struct chip_call *call);
int chip_delete_entry(struct chip_call *call);

/* headers.c */
void chip_headers(u8 *match, const u8 *frame, u32 len, int from);

/* switch.c */
void chip_transmit(struct chip_fn *fn, u8 *frame, u32 len);
void chip_from_wire(struct chip_pf *pf, u8 *frame, u32 len);
bool chip_reaches(struct chip_fn *fn, int vport, const u8 *to_mac, const u8 *from_mac);

/* wire.c */
int chip_wire_init(struct chip_pf *pf);
void chip_to_wire(struct chip_pf *pf, const u8 *frame, u32 len);
void chip_wire_carrier(struct chip_pf *pf);

/* qps.c */
int chip_create_mkey(struct chip_call *call);
int chip_destroy_mkey(struct chip_call *call);
bool chip_copy(struct chip_fn *fn, u32 key, u64 va, u8 *other, u32 len, bool to_memory);
int chip_create_qp(struct chip_call *call);
int chip_modify_qp(struct chip_call *call);
int chip_query_qp(struct chip_call *call);
int chip_destroy_qp(struct chip_call *call);
int chip_set_gid(struct chip_call *call);
void chip_gid(struct chip_fn *fn, u32 index, u8 *gid, u8 *mac);
void chip_drop_qps(struct chip_fn *fn);
void chip_ring_qp(struct chip_fn *fn, u32 qpn);
int chip_poll(void *data);

/* rc.c */
bool chip_advance(struct chip_qp *qp);
void chip_finish(struct chip_qp *qp, u32 cqn, u8 opcode, u8 syndrome, u16 counter, u32 bytes, u8 wqe_op, __be32 imm);
u32 chip_scatter(struct chip_qp *to, const u8 *data, u32 len);

/* datagrams.c */
void chip_send_datagram(struct chip_qp *qp, u64 base, u8 ds);

#endif
