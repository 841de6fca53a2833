// SPDX-License-Identifier: GPL-2.0
/*
 * QUERY_HCA_CAP: a card that has what a host with SR-IOV needs, and no more. What is 0 the drivers do without. Sizes are
 * remembered, as of a ConnectX-6 Dx where they are not the model's own.
 */
#include <linux/mlx5/vport.h>
#include <linux/slab.h>
#include "chip.h"

/* mlx5_cap_type of device.h, by its place in SET_HCA_CAP and QUERY_HCA_CAP */
#define CAP_BYTES	MLX5_UN_SZ_BYTES(hca_cap_union)

#define SET(field, value)	MLX5_SET(cmd_hca_cap, c, field, value)

static void who_it_is(struct chip_fn *fn, void *c)
{
	bool pf = chip_is_pf(fn), eth = !chip_is_ib(fn->pf);

	SET(vhca_id, 1 + fn->pf->index * 256 + chip_vport_number(fn));
	SET(port_type, eth ? MLX5_CAP_PORT_TYPE_ETH : MLX5_CAP_PORT_TYPE_IB);	/* dev.c: mlx5_eth_supported */
	SET(num_ports, 1);
	SET(native_port_num, fn->pf->index + 1);	/* mlx5_get_dev_index of driver.h: the port's name, p0 */
	SET(vport_group_manager, pf);			/* mlx5_query_nic_vport_context: may name other vports */
	SET(eswitch_manager, pf && eth);		/* MLX5_ESWITCH_MANAGER of eswitch.h: legacy mode */
	SET(ib_virt, !eth);				/* ib: main.c: mlx5_use_mad_ifc */
	SET(eth_virt, eth);				/* no driver file reads it: mlx5_ifc.h alone names it */
	SET(eth_net_offloads, eth);			/* main.c: mlx5_query_hca_caps */
	SET(nic_flow_table, eth);			/* fs_core.c: mlx5_fs_core_init */
	SET(qos, eth);					/* esw/qos.c: esw_qos_create */
	SET(ets, pf && eth);				/* en_dcbnl.c: mlx5e_dcbnl_ieee_getets */
	SET(roce, eth);					/* rdma.c: mlx5_rdma_enable_roce */
	SET(ipoib_enhanced_offloads, !eth);		/* ib: main.c: mlx5_ib_rn_get_params */
	SET(ipoib_basic_offloads, !eth);		/* ib: qp.c: process_create_flags */
	SET(nic_vport_change_event, pf && eth);		/* eswitch.c: arm_vport_context_events_cmd */
	SET(vport_counters, 1);				/* ib: mad.c */
	SET(disable_local_lb_uc, eth);			/* vport.c: mlx5_nic_vport_update_local_lb */
	SET(disable_local_lb_mc, eth);
	SET(receive_discard_vport_down, 1);		/* esw/legacy.c: mlx5_esw_query_vport_drop_stats */
	SET(transmit_discard_vport_down, 1);
	SET(driver_version, 1);				/* main.c: mlx5_set_driver_version */
	SET(force_teardown, 1);				/* main.c: mlx5_try_fast_unload */
	SET(cmdif_checksum, 0);				/* main.c: handle_hca_cap */
	SET(device_frequency_mhz, 1000);		/* lib/clock.c */
	SET(device_frequency_khz, 1000000);
	SET(log_pg_sz, 12);				/* ib: main.c: page sizes */
	SET(num_of_uars_per_page, 1);			/* uar.c: uars_per_sys_page */
	SET(log_bf_reg_size, 9);			/* uar.c: map_offset */
}

static void tables_and_lists(struct chip_fn *fn, void *c)
{
	bool eth = !chip_is_ib(fn->pf);

	SET(gid_table_size, eth ? 5 : 0);		/* mlx5_get_gid_table_len: 8 << n */
	SET(pkey_table_size, 0);			/* mlx5_to_sw_pkey_sz: 128 << n */
	SET(log_max_vlan_list, 7);			/* CHIP_LIST_MAX */
	SET(log_max_current_mc_list, 7);
	SET(log_max_current_uc_list, 7);
	SET(log_max_l2_table, chip_is_pf(fn) && eth ? 12 : 0);	/* lib/mpfs.c: mlx5_mpfs_init */
	SET(log_max_flow_counter_bulk, 15);
	SET(max_flow_counter_15_0, 0xffff);
	SET(max_tc, 8);
}

/* How many objects there may be, and how large they are. */
static void sizes(void *c)
{
	SET(log_max_eq, 6);				/* mlx5_max_eq_cap_get of mlx5_core.h */
	SET(log_max_eq_sz, 22);
	SET(max_num_eqs, 32);
	SET(log_max_cq, 24);
	SET(log_max_cq_sz, 22);
	SET(log_max_qp, 17);
	SET(log_max_qp_sz, 15);
	SET(log_max_srq, 23);
	SET(log_max_srq_sz, 15);
	SET(log_max_mkey, 24);
	SET(log_max_pd, 23);
	SET(log_max_xrcd, 16);
	SET(log_max_transport_domain, 16);
	SET(log_max_rq, 16);
	SET(log_max_sq, 16);
	SET(log_max_rmp, 16);
	SET(log_max_tir, 12);
	SET(log_max_tis, 16);
	SET(log_max_rqt, 12);
	SET(log_max_rqt_size, 11);
	SET(log_max_wq_sz, 16);
	SET(log_max_stride_sz_rq, 9);
	SET(log_min_stride_sz_rq, 4);
	SET(log_max_stride_sz_sq, 9);
	SET(log_min_stride_sz_sq, 6);
	SET(max_wqe_sz_sq, 1024);
	SET(max_wqe_sz_rq, 512);
	SET(max_wqe_sz_sq_dc, 1024);
	SET(log_max_mrw_sz, 40);
	SET(log_max_klm_list_size, 16);
	SET(log_max_bsf_list_size, 6);
	SET(max_indirection, 4);
	SET(log_max_ra_req_qp, 4);
	SET(log_max_ra_res_qp, 4);
	SET(log_max_ra_req_dc, 4);
	SET(log_max_ra_res_dc, 4);
	SET(log_max_msg, 30);
	SET(max_qp_cnt, 32);
	SET(max_qp_mcg, 240);
	SET(log_max_mcg, 21);
	SET(log_max_uctx, 10);
	SET(log_max_umem, 10);
}

/*
 * ib: main.c: mlx5_ib_query_device reads xrc, apm, imaicl, qkv, pkv and block_lb_mc; process_vendor_flags and mlx5r_ib_rate
 * of qp.c read sctr_data_cqe and stat_rate_support; mlx5_ib_resize_cq, __mlx5_ib_alloc_counters and
 * mlx5r_cmd_query_special_mkeys the flags named so; mlx5e_open_cq those of moderation; mlx5_query_hca_caps atomic.
 * Remembered, as no driver file reads them: rc, uc, ud, compact_address_vector, cq_oi, basic_cyclic_rcv_wqe.
 */
static void verbs(void *c)
{
	SET(rc, 1);
	SET(uc, 1);
	SET(ud, 1);
	SET(xrc, 1);
	SET(cd, 1);
	SET(apm, 1);
	SET(imaicl, 1);
	SET(qkv, 1);
	SET(pkv, 1);
	SET(atomic, 1);
	SET(set_deth_sqpn, 1);				/* ib: gsi.c: mlx5_ib_deth_sqpn_cap */
	SET(cqe_version, 1);				/* a CQE has the user index: get_qp_user_index of ib: qp.h */
	SET(compact_address_vector, 1);
	SET(stat_rate_support, 1);
	SET(sctr_data_cqe, 1);
	SET(block_lb_mc, 1);
	SET(cq_oi, 1);
	SET(cq_resize, 1);
	SET(cq_moderation, 1);
	SET(cq_period_mode_modify, 1);
	SET(cq_period_start_from_cqe, 1);
	SET(retransmission_q_counters, 1);
	SET(out_of_seq_cnt, 1);
	SET(basic_cyclic_rcv_wqe, 1);
	SET(null_mkey, 1);
	/* ib: umr.h: mlx5r_umr_can_load_pas: memory is registered by a command, not by a work request */
	SET(umr_modify_entity_size_disabled, 1);
}
#undef SET

/* MLX5_CAP_FLOWTABLE of device.h, read by fs_core.c: init_root_ns and others */
static void flow_table(void *p, int levels)
{
#define SET(field, value)	MLX5_SET(flow_table_prop_layout, p, field, value)
	SET(ft_support, 1);
	SET(flow_counter, 1);
	SET(flow_modify_en, 1);
	SET(modify_root, 1);
	SET(identified_miss_table_mode, 1);
	SET(flow_table_modify, 1);
	SET(log_max_ft_size, 22);
	SET(max_ft_level, levels);
	SET(log_max_ft_num, 16);
	SET(log_max_flow_counter, 16);
	SET(log_max_destination, 16);
	SET(log_max_flow, 20);
#undef SET
	memset(MLX5_ADDR_OF(flow_table_prop_layout, p, ft_field_support), 0xff,
	       MLX5_FLD_SZ_BYTES(flow_table_prop_layout, ft_field_support));
	memset(MLX5_ADDR_OF(flow_table_prop_layout, p, ft_field_bitmask_support), 0xff,
	       MLX5_FLD_SZ_BYTES(flow_table_prop_layout, ft_field_bitmask_support));
}

/* dev.c: mlx5_eth_supported; en_main.c: mlx5e_alloc_txqsq and mlx5e_build_nic_netdev read the last two */
static void offloads(void *c, bool eth)
{
#define SET(field, value)	MLX5_SET(per_protocol_networking_offload_caps, c, field, value)
	SET(csum_cap, 1);
	SET(max_lso_cap, 18);
	SET(rss_ind_tbl_cap, 11);
	SET(vlan_cap, eth);
	SET(self_lb_en_modifiable, eth);
	SET(wqe_inline_mode, eth ? MLX5_CAP_INLINE_MODE_NOT_REQUIRED : 0);	/* mlx5_query_min_inline of vport.c */
	SET(wqe_vlan_insert, eth);
	SET(scatter_fcs, eth);
#undef SET
}

static void eswitch(void *c)
{
	/* modify_esw_vport_cvlan of eswitch.c; no driver file reads insert_overwrite, mlx5_ifc.h alone names it */
	MLX5_SET(e_switch_cap, c, vport_cvlan_strip, 1);
	MLX5_SET(e_switch_cap, c, vport_cvlan_insert_if_not_exist, 1);
	MLX5_SET(e_switch_cap, c, vport_cvlan_insert_overwrite, 1);
	/* mlx5_modify_nic_vport_node_guid of vport.c */
	MLX5_SET(e_switch_cap, c, nic_vport_node_guid_modify, 1);
	MLX5_SET(e_switch_cap, c, nic_vport_port_guid_modify, 1);
}

/* esw_qos_create and esw_qos_calculate_min_rate_divider of esw/qos.c; one level: log_esw_max_sched_depth is 0 */
static void qos(void *c)
{
	MLX5_SET(qos_cap, c, esw_scheduling, 1);
	MLX5_SET(qos_cap, c, esw_bw_share, 1);
	MLX5_SET(qos_cap, c, esw_rate_limit, 1);
	MLX5_SET(qos_cap, c, esw_element_type, ELEMENT_TYPE_CAP_MASK_TSAR | ELEMENT_TYPE_CAP_MASK_VPORT);
	MLX5_SET(qos_cap, c, esw_tsar_type, TSAR_TYPE_CAP_MASK_DWRR | TSAR_TYPE_CAP_MASK_ROUND_ROBIN);
	MLX5_SET(qos_cap, c, max_tsar_bw_share, 100);
}

/* ib: main.c: get_core_cap_flags, mlx5_get_roce_udp_sport_min, mlx5_query_port_roce; the other two ports: remembered */
static void roce(void *c)
{
	MLX5_SET(roce_cap, c, l3_type, 6);		/* bits of MLX5_ROCE_L3_TYPE_*: IPv4 and IPv6 */
	MLX5_SET(roce_cap, c, roce_version, 1 << MLX5_ROCE_VERSION_2);
	MLX5_SET(roce_cap, c, r_roce_dest_udp_port, 4791);
	MLX5_SET(roce_cap, c, r_roce_max_src_udp_port, 0xffff);
	MLX5_SET(roce_cap, c, r_roce_min_src_udp_port, 0xc000);
	MLX5_SET(roce_cap, c, roce_address_table_size, 255);
}

static void fill(struct chip_fn *fn, int type, void *c)
{
	switch (type) {
	case MLX5_CAP_GENERAL:
		who_it_is(fn, c);
		tables_and_lists(fn, c);
		sizes(c);
		verbs(c);
		break;
	case MLX5_CAP_ETHERNET_OFFLOADS:
		offloads(c, true);
		break;
	case MLX5_CAP_IPOIB_ENHANCED_OFFLOADS:
		offloads(c, false);
		break;
	case MLX5_CAP_ATOMIC:
		MLX5_SET(atomic_caps, c, atomic_operations, 3);
		MLX5_SET(atomic_caps, c, atomic_size_qp, 8);
		break;
	case MLX5_CAP_ROCE:
		roce(c);
		break;
	case MLX5_CAP_FLOW_TABLE:
		flow_table(MLX5_ADDR_OF(flow_table_nic_cap, c, flow_table_properties_nic_receive), 64);
		break;
	case MLX5_CAP_ESWITCH_FLOW_TABLE:
		flow_table(MLX5_ADDR_OF(flow_table_eswitch_cap, c, flow_table_properties_nic_esw_fdb), 64);
		flow_table(MLX5_ADDR_OF(flow_table_eswitch_cap, c, flow_table_properties_esw_acl_ingress), 4);
		flow_table(MLX5_ADDR_OF(flow_table_eswitch_cap, c, flow_table_properties_esw_acl_egress), 4);
		break;
	case MLX5_CAP_ESWITCH:
		eswitch(c);
		break;
	case MLX5_CAP_QOS:
		if (chip_is_pf(fn))
			qos(c);
		break;
	}
}

/* The function that a command is about: vport.c: mlx5_vport_get_other_func_cap. */
static struct chip_fn *asked(struct chip_call *call)
{
	if (!CALL_IN(call, query_hca_cap_in, other_function))
		return call->fn;
	return chip_function(call->fn->pf, CALL_IN(call, query_hca_cap_in, function_id));
}

/* mlx5_core_get_caps_mode of main.c: the type, and whether what may be or what is. */
int chip_query_caps(struct chip_call *call)
{
	void *out = MLX5_ADDR_OF(query_hca_cap_out, call->out, capability);
	bool current_ones = call->mod & 1;
	struct chip_fn *fn = asked(call);
	int type = call->mod >> 1;

	if (!fn)
		return MLX5_CMD_STAT_BAD_PARAM_ERR;
	if (type >= CHIP_CAP_TYPES)
		return 0;
	if (current_ones && fn->cap[type])
		memcpy(out, fn->cap[type], CAP_BYTES);
	else
		fill(fn, type, out);
	return 0;
}

/* set_caps of main.c */
int chip_set_caps(struct chip_call *call)
{
	u32 len = min_t(u32, CAP_BYTES, call->inlen - MLX5_BYTE_OFF(set_hca_cap_in, capability));
	struct chip_fn *fn = asked(call);
	int type = call->mod >> 1;

	if (!fn || type >= CHIP_CAP_TYPES)
		return MLX5_CMD_STAT_BAD_PARAM_ERR;
	if (!fn->cap[type])
		fn->cap[type] = kzalloc(CAP_BYTES, GFP_KERNEL);
	if (!fn->cap[type])
		return MLX5_CMD_STAT_NO_RES_ERR;
	memcpy(fn->cap[type], MLX5_ADDR_OF(set_hca_cap_in, call->in, capability), len);
	return 0;
}
