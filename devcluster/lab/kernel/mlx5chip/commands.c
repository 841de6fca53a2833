// SPDX-License-Identifier: GPL-2.0
/*
 * The commands of the firmware, each with the function of the driver that sends it and reads its answer, in
 * drivers/net/ethernet/mellanox/mlx5/core or, after "ib:", in drivers/infiniband/hw/mlx5. And faults, one at a time.
 */
#include <linux/moduleparam.h>
#include <linux/string.h>
#include "chip.h"

/* An object of which nothing is known but that it has a number. */
static int give_id(struct chip_call *call)
{
	chip_answer_id(call, chip_new_id(call->fn->pf));
	return 0;
}

/* Counter sets have 8 bits in a queue pair's context: qpc.counter_set_id of mlx5_ifc.h. */
static int alloc_q_counter(struct chip_call *call)
{
	chip_answer_id(call, 1 + call->fn->pf->next_id++ % 250);
	return 0;
}

/* Nothing of the model depends on it; counters read as zeros. */
static int accept(struct chip_call *call)
{
	return 0;
}

static const struct {
	u16 op;
	int (*run)(struct chip_call *call);
} commands[] = {
	{ MLX5_CMD_OP_ENABLE_HCA, accept },				/* main.c: mlx5_core_enable_hca; sriov.c */
	{ MLX5_CMD_OP_DISABLE_HCA, accept },				/* main.c: mlx5_core_disable_hca; sriov.c */
	{ MLX5_CMD_OP_INIT_HCA, chip_init_hca },			/* fw.c: mlx5_cmd_init_hca */
	{ MLX5_CMD_OP_TEARDOWN_HCA, chip_teardown_hca },		/* fw.c: mlx5_cmd_teardown_hca */
	{ MLX5_CMD_OP_QUERY_ISSI, chip_query_issi },			/* main.c: mlx5_core_set_issi */
	{ MLX5_CMD_OP_SET_ISSI, accept },				/* main.c: mlx5_core_set_issi */
	{ MLX5_CMD_OP_SET_DRIVER_VERSION, accept },			/* main.c: mlx5_set_driver_version */
	{ MLX5_CMD_OP_QUERY_PAGES, chip_query_pages },			/* pagealloc.c: mlx5_cmd_query_pages */
	{ MLX5_CMD_OP_MANAGE_PAGES, chip_manage_pages },		/* pagealloc.c: give_pages, reclaim_pages_cmd */
	{ MLX5_CMD_OP_QUERY_HCA_CAP, chip_query_caps },			/* main.c: mlx5_core_get_caps_mode */
	{ MLX5_CMD_OP_SET_HCA_CAP, chip_set_caps },			/* main.c: set_caps; vport.c: other functions' */
	{ MLX5_CMD_OP_QUERY_ADAPTER, chip_query_adapter },		/* fw.c: mlx5_query_board_id */
	{ MLX5_CMD_OP_QUERY_SPECIAL_CONTEXTS, chip_query_special },	/* ib: cmd.c: mlx5r_cmd_query_special_mkeys */
	{ MLX5_CMD_OP_ALLOC_UAR, chip_alloc_uar },			/* uar.c: mlx5_cmd_alloc_uar */
	{ MLX5_CMD_OP_DEALLOC_UAR, chip_dealloc_uar },			/* uar.c: mlx5_cmd_free_uar */
	{ MLX5_CMD_OP_ACCESS_REG, chip_access_register },		/* port.c: mlx5_access_reg */

	{ MLX5_CMD_OP_QUERY_NIC_VPORT_CONTEXT, chip_query_nic_vport },	/* vport.c: mlx5_query_nic_vport_* */
	{ MLX5_CMD_OP_MODIFY_NIC_VPORT_CONTEXT, chip_modify_nic_vport },/* vport.c: mlx5_modify_nic_vport_* */
	{ MLX5_CMD_OP_MODIFY_ESW_VPORT_CONTEXT, chip_modify_esw_vport },/* eswitch.c: modify_esw_vport_cvlan */
	{ MLX5_CMD_OP_QUERY_HCA_VPORT_CONTEXT, chip_query_hca_vport },	/* vport.c: mlx5_query_hca_vport_context */
	{ MLX5_CMD_OP_MODIFY_HCA_VPORT_CONTEXT, chip_modify_hca_vport },/* vport.c: mlx5_core_modify_hca_vport_context */
	{ MLX5_CMD_OP_QUERY_HCA_VPORT_GID, chip_query_gid },		/* vport.c: mlx5_query_hca_vport_gid */
	{ MLX5_CMD_OP_QUERY_HCA_VPORT_PKEY, chip_query_pkey },		/* vport.c: mlx5_query_hca_vport_pkey */
	{ MLX5_CMD_OP_QUERY_VPORT_STATE, chip_query_vport_state },	/* vport.c: mlx5_query_vport_state */
	{ MLX5_CMD_OP_MODIFY_VPORT_STATE, chip_modify_vport_state },	/* vport.c: mlx5_modify_vport_admin_state */
	{ MLX5_CMD_OP_QUERY_VPORT_COUNTER, chip_query_vport_counter },	/* eswitch.c: mlx5_eswitch_get_vport_stats; ib: mad.c */
	{ MLX5_CMD_OP_QUERY_VNIC_ENV, accept },				/* vport.c: mlx5_query_vport_down_stats */
	{ MLX5_CMD_OP_SET_L2_TABLE_ENTRY, accept },			/* lib/mpfs.c: set_l2table_entry_cmd */
	{ MLX5_CMD_OP_DELETE_L2_TABLE_ENTRY, accept },			/* lib/mpfs.c: del_l2table_entry_cmd */

	{ MLX5_CMD_OP_CREATE_SCHEDULING_ELEMENT, chip_create_element },	/* rl.c: mlx5_create_scheduling_element_cmd */
	{ MLX5_CMD_OP_MODIFY_SCHEDULING_ELEMENT, chip_modify_element },	/* rl.c: mlx5_modify_scheduling_element_cmd */
	{ MLX5_CMD_OP_DESTROY_SCHEDULING_ELEMENT, chip_destroy_element },/* rl.c: mlx5_destroy_scheduling_element_cmd */

	{ MLX5_CMD_OP_CREATE_FLOW_TABLE, chip_create_table },		/* fs_cmd.c: mlx5_cmd_create_flow_table */
	{ MLX5_CMD_OP_MODIFY_FLOW_TABLE, chip_modify_table },		/* fs_cmd.c: mlx5_cmd_modify_flow_table */
	{ MLX5_CMD_OP_DESTROY_FLOW_TABLE, chip_destroy_table },		/* fs_cmd.c: mlx5_cmd_destroy_flow_table */
	{ MLX5_CMD_OP_SET_FLOW_TABLE_ROOT, chip_set_root },		/* fs_cmd.c: mlx5_cmd_update_root_ft */
	{ MLX5_CMD_OP_CREATE_FLOW_GROUP, chip_create_group },		/* fs_cmd.c: mlx5_cmd_create_flow_group */
	{ MLX5_CMD_OP_DESTROY_FLOW_GROUP, chip_destroy_group },		/* fs_cmd.c: mlx5_cmd_destroy_flow_group */
	{ MLX5_CMD_OP_SET_FLOW_TABLE_ENTRY, chip_set_entry },		/* fs_cmd.c: mlx5_cmd_set_fte */
	{ MLX5_CMD_OP_DELETE_FLOW_TABLE_ENTRY, chip_delete_entry },	/* fs_cmd.c: mlx5_cmd_delete_fte */
	{ MLX5_CMD_OP_ALLOC_FLOW_COUNTER, give_id },			/* fs_cmd.c: mlx5_cmd_fc_bulk_alloc */
	{ MLX5_CMD_OP_QUERY_FLOW_COUNTER, accept },			/* fs_cmd.c: mlx5_cmd_fc_query */
	{ MLX5_CMD_OP_DEALLOC_FLOW_COUNTER, accept },			/* fs_cmd.c: mlx5_cmd_fc_free */

	{ MLX5_CMD_OP_CREATE_EQ, chip_create_eq },			/* eq.c: create_map_eq */
	{ MLX5_CMD_OP_DESTROY_EQ, chip_destroy_eq },			/* eq.c: mlx5_cmd_destroy_eq */
	{ MLX5_CMD_OP_CREATE_CQ, chip_create_cq },			/* cq.c: mlx5_create_cq */
	{ MLX5_CMD_OP_MODIFY_CQ, accept },				/* cq.c: mlx5_core_modify_cq */
	{ MLX5_CMD_OP_DESTROY_CQ, chip_destroy_cq },			/* cq.c: mlx5_core_destroy_cq */
	{ MLX5_CMD_OP_CREATE_SQ, chip_create_sq },			/* transobj.c: mlx5_core_create_sq */
	{ MLX5_CMD_OP_MODIFY_SQ, accept },				/* transobj.c: mlx5_core_modify_sq */
	{ MLX5_CMD_OP_DESTROY_SQ, chip_destroy_sq },			/* transobj.c: mlx5_core_destroy_sq */
	{ MLX5_CMD_OP_CREATE_RQ, chip_create_rq },			/* transobj.c: mlx5_core_create_rq */
	{ MLX5_CMD_OP_MODIFY_RQ, chip_modify_rq },			/* transobj.c: mlx5_core_modify_rq */
	{ MLX5_CMD_OP_DESTROY_RQ, chip_destroy_rq },			/* transobj.c: mlx5_core_destroy_rq */
	{ MLX5_CMD_OP_CREATE_TIR, chip_set_tir },			/* transobj.c: mlx5_core_create_tir */
	{ MLX5_CMD_OP_MODIFY_TIR, chip_set_tir },			/* transobj.c: mlx5_core_modify_tir */
	{ MLX5_CMD_OP_DESTROY_TIR, accept },				/* transobj.c: mlx5_core_destroy_tir */
	{ MLX5_CMD_OP_CREATE_RQT, chip_set_rqt },			/* transobj.c: mlx5_core_create_rqt */
	{ MLX5_CMD_OP_MODIFY_RQT, chip_set_rqt },			/* transobj.c: mlx5_core_modify_rqt */
	{ MLX5_CMD_OP_DESTROY_RQT, accept },				/* transobj.c: mlx5_core_destroy_rqt */
	{ MLX5_CMD_OP_CREATE_TIS, give_id },				/* transobj.c: mlx5_core_create_tis */
	{ MLX5_CMD_OP_MODIFY_TIS, accept },			/* transobj.c: mlx5_core_modify_tis */
	{ MLX5_CMD_OP_DESTROY_TIS, accept },				/* transobj.c: mlx5_core_destroy_tis */
	{ MLX5_CMD_OP_ALLOC_TRANSPORT_DOMAIN, give_id },		/* transobj.c: mlx5_core_alloc_transport_domain */
	{ MLX5_CMD_OP_DEALLOC_TRANSPORT_DOMAIN, accept },	/* transobj.c: mlx5_core_dealloc_transport_domain */
	{ MLX5_CMD_OP_ALLOC_PD, give_id },				/* pd.c: mlx5_core_alloc_pd; ib: main.c */
	{ MLX5_CMD_OP_DEALLOC_PD, accept },				/* pd.c: mlx5_core_dealloc_pd; ib: main.c */
	{ MLX5_CMD_OP_ALLOC_Q_COUNTER, alloc_q_counter },		/* en_main.c: mlx5e_create_q_counters; ib: counters.c */
	{ MLX5_CMD_OP_QUERY_Q_COUNTER, accept },		/* en_stats.c: qcnt; ib: counters.c: mlx5_ib_query_q_counters */
	{ MLX5_CMD_OP_DEALLOC_Q_COUNTER, accept },		/* en_main.c: mlx5e_destroy_q_counters */

	{ MLX5_CMD_OP_CREATE_QP, chip_create_qp },			/* ib: qpc.c: mlx5_qpc_create_qp */
	{ MLX5_CMD_OP_RST2INIT_QP, chip_modify_qp },			/* ib: qpc.c: modify_qp_mbox_alloc; ipoib/ipoib.c */
	{ MLX5_CMD_OP_INIT2INIT_QP, chip_modify_qp },		/* ib: qp.c: __mlx5_ib_modify_qp; qpc.c */
	{ MLX5_CMD_OP_INIT2RTR_QP, chip_modify_qp },		/* ib: qp.c: __mlx5_ib_modify_qp; qpc.c */
	{ MLX5_CMD_OP_RTR2RTS_QP, chip_modify_qp },		/* ib: qp.c: __mlx5_ib_modify_qp; qpc.c */
	{ MLX5_CMD_OP_RTS2RTS_QP, chip_modify_qp },		/* ib: qp.c: __mlx5_ib_modify_qp; qpc.c */
	{ MLX5_CMD_OP_SQERR2RTS_QP, chip_modify_qp },		/* ib: qp.c: __mlx5_ib_modify_qp; qpc.c */
	{ MLX5_CMD_OP_2ERR_QP, chip_modify_qp },		/* ib: qp.c: __mlx5_ib_modify_qp; ipoib/ipoib.c */
	{ MLX5_CMD_OP_2RST_QP, chip_modify_qp },		/* ib: qp.c: destroy_qp_common; ipoib/ipoib.c */
	{ MLX5_CMD_OP_QUERY_QP, chip_query_qp },			/* ib: qpc.c: mlx5_core_qp_query */
	{ MLX5_CMD_OP_DESTROY_QP, chip_destroy_qp },			/* ib: qpc.c: mlx5_core_destroy_qp */
	{ MLX5_CMD_OP_CREATE_MKEY, chip_create_mkey },			/* mr.c: mlx5_core_create_mkey */
	{ MLX5_CMD_OP_DESTROY_MKEY, chip_destroy_mkey },		/* mr.c: mlx5_core_destroy_mkey */
	{ MLX5_CMD_OP_SET_ROCE_ADDRESS, chip_set_gid },			/* lib/gid.c: mlx5_core_roce_gid_set */
	{ MLX5_CMD_OP_CREATE_SRQ, give_id },			/* ib: srq_cmd.c: create_srq_cmd; made, never filled */
	{ MLX5_CMD_OP_DESTROY_SRQ, accept },			/* ib: srq_cmd.c: destroy_srq_cmd */
	{ MLX5_CMD_OP_CREATE_XRC_SRQ, give_id },		/* ib: srq_cmd.c: create_xrc_srq_cmd */
	{ MLX5_CMD_OP_DESTROY_XRC_SRQ, accept },		/* ib: srq_cmd.c: destroy_xrc_srq_cmd */
	{ MLX5_CMD_OP_CREATE_RMP, give_id },			/* ib: srq_cmd.c: create_rmp_cmd */
	{ MLX5_CMD_OP_DESTROY_RMP, accept },			/* ib: srq_cmd.c: destroy_rmp_cmd */
	{ MLX5_CMD_OP_ALLOC_XRCD, give_id },				/* ib: qpc.c: mlx5_core_xrcd_alloc */
	{ MLX5_CMD_OP_DEALLOC_XRCD, accept },			/* ib: qpc.c: mlx5_core_xrcd_dealloc */
	{ MLX5_CMD_OP_CREATE_UCTX, give_id },				/* ib: devx.c: mlx5_ib_devx_create */
	{ MLX5_CMD_OP_DESTROY_UCTX, accept },			/* ib: devx.c: mlx5_ib_devx_destroy */
	{ MLX5_CMD_OP_ATTACH_TO_MCG, accept },				/* mcg.c: mlx5_core_attach_mcg; ib: cmd.c */
	{ MLX5_CMD_OP_DETACH_FROM_MCG, accept },		/* mcg.c: mlx5_core_detach_mcg; ib: cmd.c */
};

int chip_run(struct chip_call *call)
{
	int i;

	for (i = 0; i < ARRAY_SIZE(commands); i++)
		if (commands[i].op == call->op)
			return commands[i].run(call);
	pr_warn("mlx5chip: vf %d: command %#x (modifier %#x) is not modelled\n", call->fn->vf, call->op, call->mod);
	return MLX5_CMD_STAT_BAD_OP_ERR;
}

/*
 * Faults: "KIND NTH [OP [VF]]" breaks the NTH command from now, of those with the opcode OP (0: any) of the function VF
 * (-1: the PF, -2: any). NTH 0 breaks each. KIND is the name of what happens to it. Reading tells how many commands
 * have passed since, and the one that was broken.
 */
enum fault { NONE, REFUSE, REFUSE_LATE, HANG, HANG_LATE, LATE };
static const char * const fault_names[] = {
	[NONE] = "none",
	[REFUSE] = "refused",			/* and nothing has changed */
	[REFUSE_LATE] = "refused-after",	/* and yet it has had its effect */
	[HANG] = "unanswered",
	[HANG_LATE] = "unanswered-after",
	[LATE] = "late",			/* carried out at once, answered when the driver has given up */
};

static struct {
	int kind, nth, op, vf, passed, broken_op, broken_vf;
} fault;
static u8 fault_status = MLX5_CMD_STAT_BAD_RES_STATE_ERR;
static unsigned int fault_late_ms = 2000;
module_param(fault_status, byte, 0644);
module_param(fault_late_ms, uint, 0644);

static int set_fault(const char *text, const struct kernel_param *param)
{
	int nth = 0, op = 0, vf = -2, kind;
	char name[24];

	if (sscanf(text, "%23s %i %i %i", name, &nth, &op, &vf) < 1)
		return -EINVAL;
	kind = match_string(fault_names, ARRAY_SIZE(fault_names), name);
	if (kind < 0)
		return kind;
	memset(&fault, 0, sizeof(fault));
	fault.nth = nth;
	fault.op = op;
	fault.vf = vf;
	fault.kind = kind;
	return 0;
}

static int show_fault(char *to, const struct kernel_param *param)
{
	return scnprintf(to, PAGE_SIZE, "%s passed %d broken %#x vf %d\n", fault_names[fault.kind], fault.passed,
			 fault.broken_op, fault.broken_vf);
}

static const struct kernel_param_ops fault_ops = { .set = set_fault, .get = show_fault };
module_param_cb(fault, &fault_ops, NULL, 0644);

struct chip_verdict chip_judge(struct chip_fn *fn, u16 op)
{
	struct chip_verdict verdict = { .effect = true, .answered = true };

	if ((fault.op && fault.op != op) || (fault.vf != -2 && fault.vf != fn->vf))
		return verdict;
	if (++fault.passed != fault.nth && fault.nth)
		return verdict;
	if (fault.kind == NONE)
		return verdict;
	fault.broken_op = op;
	fault.broken_vf = fn->vf;
	verdict.effect = fault.kind != REFUSE && fault.kind != HANG;
	verdict.answered = fault.kind != HANG && fault.kind != HANG_LATE;
	verdict.status = fault.kind == REFUSE || fault.kind == REFUSE_LATE ? fault_status : 0;
	verdict.late_ms = fault.kind == LATE ? fault_late_ms : 0;
	return verdict;
}
