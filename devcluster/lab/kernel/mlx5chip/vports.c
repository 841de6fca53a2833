// SPDX-License-Identifier: GPL-2.0
/* Vports: what the firmware keeps for the PF and each VF, whether or not the bus has the VF. */
#include <linux/etherdevice.h>
#include <linux/mlx5/vport.h>
#include <linux/moduleparam.h>
#include <linux/unaligned.h>
#include <rdma/ib_verbs.h>
#include "chip.h"

#define PATH_MTU	1024
#define LINK_UP_EVENT	4	/* MLX5_PORT_CHANGE_SUBTYPE_* of device.h: ACTIVE, DOWN, INITIALIZED */
#define LINK_DOWN_EVENT	1
#define INITIALIZED_EVENT 5

/* How long the subnet manager takes to activate an InfiniBand port; 0: for ever. */
static unsigned int active_ms = 2000;
module_param(active_ms, uint, 0644);

struct chip_vport *chip_vport(struct chip_pf *pf, int vport)
{
	if (vport == MLX5_VPORT_UPLINK)
		return &pf->uplink;
	return vport >= 0 && vport <= CHIP_MAX_VFS ? &pf->vport[vport] : NULL;
}

/*
 * The vport that a command is about. All have other_vport and vport_number where this command has them. Remembered:
 * only the PF, which manages the vports, may name another's.
 */
static struct chip_vport *named(struct chip_call *call, int *n)
{
	struct chip_fn *fn = call->fn;

	*n = chip_vport_number(fn);
	if (CALL_IN(call, query_nic_vport_context_in, other_vport))
		*n = CALL_IN(call, query_nic_vport_context_in, vport_number);
	return *n != chip_vport_number(fn) && !chip_is_pf(fn) ? NULL : chip_vport(fn->pf, *n);
}

/*
 * AUTO is the port's state, as IFLA_VF_LINK_STATE_AUTO of if_link.h says, of which mlx5_ifla_link2vport of en_main.c
 * makes it. Remembered: that a card does so.
 */
bool chip_vport_up(struct chip_pf *pf, int vport)
{
	if (vport == 0 || vport == MLX5_VPORT_UPLINK)
		return pf->port_up;
	switch (pf->vport[vport].admin) {
	case MLX5_VPORT_ADMIN_STATE_UP:
		return true;
	case MLX5_VPORT_ADMIN_STATE_AUTO:
		return pf->port_up;
	}
	return false;
}

/* handle_port_change of ib: main.c reads the port in the upper four bits, async_event of en_main.c the subtype. */
void chip_port_event(struct chip_pf *pf, int vport)
{
	static const u8 infiniband[] = {
		[IB_PORT_NOP] = LINK_DOWN_EVENT,
		[IB_PORT_DOWN] = LINK_DOWN_EVENT,
		[IB_PORT_INIT] = INITIALIZED_EVENT,
		[IB_PORT_ARMED] = INITIALIZED_EVENT,
		[IB_PORT_ACTIVE] = LINK_UP_EVENT,
	};
	struct mlx5_eqe_port_state data = { .port = 1 << 4 };
	struct chip_fn *fn = chip_function(pf, vport);
	u8 subtype = chip_vport_up(pf, vport) ? LINK_UP_EVENT : LINK_DOWN_EVENT;

	if (chip_is_ib(pf))
		subtype = infiniband[pf->vport[vport].ib_state];
	if (fn && fn->initialized)
		chip_event(fn, MLX5_EVENT_TYPE_PORT_CHANGE, subtype, &data, sizeof(data));
}

/* Remembered: a subnet manager takes a port from INIT to ACTIVE. */
void chip_subnet_manager(struct work_struct *work)
{
	struct chip_pf *pf = container_of(to_delayed_work(work), struct chip_pf, subnet_manager);
	int n;

	for (n = 0; n <= CHIP_MAX_VFS; n++)
		if (pf->vport[n].ib_state == IB_PORT_INIT) {
			pf->vport[n].ib_state = IB_PORT_ACTIVE;
			chip_port_event(pf, n);
		}
}

static void set_guids(struct chip_vport *vport, u64 image, u64 own)
{
	MLX5_SET64(nic_vport_context, vport->nic, system_image_guid, image);
	MLX5_SET64(hca_vport_context, vport->hca, system_image_guid, image);
	MLX5_SET64(nic_vport_context, vport->nic, node_guid, own);
	MLX5_SET64(nic_vport_context, vport->nic, port_guid, own);
	MLX5_SET64(hca_vport_context, vport->hca, node_guid, own);
	MLX5_SET64(hca_vport_context, vport->hca, port_guid, own);
}

/* VFs start without addresses and GUIDs, and with their state down: esw_vport_setup of eswitch.c sets it. */
void chip_vports_init(struct chip_pf *pf)
{
	u8 mac[ETH_ALEN] = { 0x0c, 0x42, 0xa1, 0x5d, 0x3b, pf->index };
	u64 image = chip_is_ib(pf) ? 0x0c42a10300123450ULL : 0x0c42a103005d3b00ULL;
	int n;

	for (n = 0; n <= CHIP_MAX_VFS; n++) {
		struct chip_vport *vport = &pf->vport[n];

		vport->ib_state = n ? IB_PORT_DOWN : IB_PORT_ACTIVE;
		vport->admin = n ? MLX5_VPORT_ADMIN_STATE_DOWN : MLX5_VPORT_ADMIN_STATE_AUTO;
		MLX5_SET(nic_vport_context, vport->nic, mtu, 1500);
		set_guids(vport, image, n ? 0 : image + pf->index);
	}
	ether_addr_copy((u8 *)MLX5_ADDR_OF(nic_vport_context, pf->vport[0].nic, permanent_address) + 2, mac);
}

/* mlx5_query_nic_vport_mac_list and others of vport.c */
int chip_query_nic_vport(struct chip_call *call)
{
	void *context = MLX5_ADDR_OF(query_nic_vport_context_out, call->out, nic_vport_context);
	u32 type = CALL_IN(call, query_nic_vport_context_in, allowed_list_type), i;
	void *end = call->out + call->outlen;
	int n;
	struct chip_vport *vport = named(call, &n);

	if (!vport || type >= CHIP_LISTS)
		return MLX5_CMD_STAT_BAD_PARAM_ERR;
	memcpy(context, vport->nic, min_t(u32, sizeof(vport->nic), end - context));
	MLX5_SET(nic_vport_context, context, allowed_list_type, type);
	MLX5_SET(nic_vport_context, context, allowed_list_size, vport->listed[type]);
	for (i = 0; i < vport->listed[type]; i++) {
		void *at = MLX5_ADDR_OF(nic_vport_context, context, current_uc_mac_address[i]);

		if (at + sizeof(u64) <= end)
			memcpy(at, &vport->list[type][i], sizeof(u64));
	}
	return 0;
}

static int set_list(struct chip_vport *vport, void *context)
{
	u32 type = MLX5_GET(nic_vport_context, context, allowed_list_type);
	u32 len = MLX5_GET(nic_vport_context, context, allowed_list_size), i;

	if (type >= CHIP_LISTS || len > CHIP_LIST_MAX)
		return MLX5_CMD_STAT_BAD_PARAM_ERR;
	for (i = 0; i < len; i++)
		memcpy(&vport->list[type][i], MLX5_ADDR_OF(nic_vport_context, context, current_uc_mac_address[i]), sizeof(u64));
	vport->listed[type] = len;
	return 0;
}

/* arm_vport_context_events_cmd of eswitch.c: told once, then armed again (esw_vport_change_handle_locked). */
static void tell_of_change(struct chip_pf *pf, int n)
{
	struct mlx5_eqe_vport_change data = { .vport_num = cpu_to_be16(n) };

	if (!pf->vport[n].armed || !pf->fn.initialized)
		return;
	pf->vport[n].armed = false;
	chip_event(&pf->fn, MLX5_EVENT_TYPE_NIC_VPORT_CHANGE, 0, &data, sizeof(data));
}

int chip_modify_nic_vport(struct chip_call *call)
{
	void *from = MLX5_ADDR_OF(modify_nic_vport_context_in, call->in, nic_vport_context);
	bool changed = false;
	int n, err;
	struct chip_vport *vport = named(call, &n);
	void *to;

	if (!vport)
		return MLX5_CMD_STAT_BAD_PARAM_ERR;
	to = vport->nic;
#define SELECTED(field)	CALL_IN(call, modify_nic_vport_context_in, field_select.field)
#define COPY(field)	MLX5_SET(nic_vport_context, to, field, MLX5_GET(nic_vport_context, from, field))
#define COPY64(field)	MLX5_SET64(nic_vport_context, to, field, MLX5_GET64(nic_vport_context, from, field))
	if (SELECTED(node_guid))
		COPY64(node_guid);
	if (SELECTED(port_guid))
		COPY64(port_guid);
	if (SELECTED(mtu))
		COPY(mtu);
	if (SELECTED(min_inline))
		COPY(min_wqe_inline_mode);
	if (SELECTED(roce_en))
		COPY(roce_en);
	if (SELECTED(disable_uc_local_lb))
		COPY(disable_uc_local_lb);
	if (SELECTED(disable_mc_local_lb))
		COPY(disable_mc_local_lb);
	if (SELECTED(promisc)) {
		COPY(promisc_uc);
		COPY(promisc_mc);
		COPY(promisc_all);
		changed = true;
	}
	if (SELECTED(permanent_address))
		memcpy(MLX5_ADDR_OF(nic_vport_context, to, permanent_address),
		       MLX5_ADDR_OF(nic_vport_context, from, permanent_address), sizeof(u64));
	if (SELECTED(addresses_list)) {
		err = set_list(vport, from);
		if (err)
			return err;
		changed = true;
	}
	if (SELECTED(change_event))
		vport->armed = MLX5_GET(nic_vport_context, from, arm_change_event);
#undef SELECTED
#undef COPY
#undef COPY64
	if (changed)
		tell_of_change(call->fn->pf, n);
	return 0;
}

/* modify_esw_vport_cvlan of eswitch.c */
int chip_modify_esw_vport(struct chip_call *call)
{
	void *from = MLX5_ADDR_OF(modify_esw_vport_context_in, call->in, esw_vport_context);
	int n;
	struct chip_vport *vport = named(call, &n);

	if (!vport || !chip_is_pf(call->fn))
		return MLX5_CMD_STAT_BAD_PARAM_ERR;
#define SELECTED(field)	CALL_IN(call, modify_esw_vport_context_in, field_select.field)
#define COPY(field)	MLX5_SET(esw_vport_context, vport->esw, field, MLX5_GET(esw_vport_context, from, field))
	if (SELECTED(vport_cvlan_strip))
		COPY(vport_cvlan_strip);
	if (SELECTED(vport_cvlan_insert)) {
		COPY(vport_cvlan_insert);
		COPY(cvlan_id);
		COPY(cvlan_pcp);
	}
#undef SELECTED
#undef COPY
	return 0;
}

/*
 * mlx5_query_hca_vport_context of vport.c, and mlx5_query_hca_port of drivers/infiniband/hw/mlx5/main.c. Remembered:
 * the link is up whatever the policy says, only an active port has LIDs, and a usual timeout is 18.
 */
int chip_query_hca_vport(struct chip_call *call)
{
	void *out = MLX5_ADDR_OF(query_hca_vport_context_out, call->out, hca_vport_context);
	int n;
	struct chip_vport *vport = named(call, &n);
	bool active;

	if (!vport)
		return MLX5_CMD_STAT_BAD_PARAM_ERR;
	active = vport->ib_state == IB_PORT_ACTIVE;
	memcpy(out, vport->hca, min_t(u32, sizeof(vport->hca), call->out + call->outlen - out));
	MLX5_SET(hca_vport_context, out, port_physical_state, IB_PORT_PHYS_STATE_LINK_UP);
	MLX5_SET(hca_vport_context, out, port_state, vport->ib_state);
	MLX5_SET(hca_vport_context, out, vport_state, vport->ib_state);
	MLX5_SET(hca_vport_context, out, lid, active ? n + 2 : 0);
	MLX5_SET(hca_vport_context, out, sm_lid, active ? 1 : 0);
	MLX5_SET(hca_vport_context, out, cap_mask1, 0x2651e84a);	/* remembered: of a ConnectX-6 */
	MLX5_SET(hca_vport_context, out, subnet_timeout, 18);
	return 0;
}

/* Remembered: a policy of DOWN takes a port down, another one takes it from DOWN to INIT. */
static void set_policy(struct chip_pf *pf, struct chip_vport *vport, int n)
{
	if (MLX5_GET(hca_vport_context, vport->hca, vport_state_policy) == MLX5_POLICY_DOWN) {
		vport->ib_state = IB_PORT_DOWN;
	} else if (vport->ib_state == IB_PORT_DOWN) {
		vport->ib_state = IB_PORT_INIT;
		if (active_ms)
			mod_delayed_work(system_wq, &pf->subnet_manager, msecs_to_jiffies(active_ms));
	}
	chip_port_event(pf, n);
}

/* mlx5_ib_set_vf_link_state, set_vf_node_guid, set_vf_port_guid of drivers/infiniband/hw/mlx5/ib_virt.c */
int chip_modify_hca_vport(struct chip_call *call)
{
	void *from = MLX5_ADDR_OF(modify_hca_vport_context_in, call->in, hca_vport_context);
	u32 fields = MLX5_GET(hca_vport_context, from, field_select);
	int n;
	struct chip_vport *vport = named(call, &n);

	if (!vport || n > CHIP_MAX_VFS)
		return MLX5_CMD_STAT_BAD_PARAM_ERR;
	if (fields & MLX5_HCA_VPORT_SEL_NODE_GUID)
		MLX5_SET64(hca_vport_context, vport->hca, node_guid, MLX5_GET64(hca_vport_context, from, node_guid));
	if (fields & MLX5_HCA_VPORT_SEL_PORT_GUID)
		MLX5_SET64(hca_vport_context, vport->hca, port_guid, MLX5_GET64(hca_vport_context, from, port_guid));
	if (fields & MLX5_HCA_VPORT_SEL_STATE_POLICY) {
		MLX5_SET(hca_vport_context, vport->hca, vport_state_policy,
			 MLX5_GET(hca_vport_context, from, vport_state_policy));
		set_policy(call->fn->pf, vport, n);
	}
	return 0;
}

/* mlx5_query_hca_vport_gid of vport.c: one GID, of the subnet's prefix and the port's GUID */
int chip_query_gid(struct chip_call *call)
{
	u8 *gid = MLX5_ADDR_OF(query_hca_vport_gid_out, call->out, gid);
	int n;
	struct chip_vport *vport = named(call, &n);

	if (!vport)
		return MLX5_CMD_STAT_BAD_PARAM_ERR;
	CALL_OUT(call, query_hca_vport_gid_out, gids_num, 1);
	if (CALL_IN(call, query_hca_vport_gid_in, gid_index))
		return 0;
	put_unaligned_be64(0xfe80000000000000ULL, gid);
	put_unaligned_be64(MLX5_GET64(hca_vport_context, vport->hca, port_guid), gid + sizeof(u64));
	return 0;
}

/* mlx5_query_hca_vport_pkey of vport.c: the default key, alone in the table (index 0xffff asks for all of it) */
int chip_query_pkey(struct chip_call *call)
{
	u32 index = CALL_IN(call, query_hca_vport_pkey_in, pkey_index);
	void *key = MLX5_ADDR_OF(query_hca_vport_pkey_out, call->out, pkey);

	if (index == 0 || index == 0xffff)
		MLX5_SET(pkey, key, pkey, 0xffff);
	return 0;
}

int chip_query_vport_state(struct chip_call *call)
{
	int n;
	struct chip_vport *vport = named(call, &n);

	if (!vport)
		return MLX5_CMD_STAT_BAD_PARAM_ERR;
	CALL_OUT(call, query_vport_state_out, admin_state, vport->admin);
	CALL_OUT(call, query_vport_state_out, state, chip_vport_up(call->fn->pf, n) ? VPORT_STATE_UP : VPORT_STATE_DOWN);
	return 0;
}

int chip_modify_vport_state(struct chip_call *call)
{
	int n;
	struct chip_vport *vport = named(call, &n);

	if (!vport)
		return MLX5_CMD_STAT_BAD_PARAM_ERR;
	if (call->mod != MLX5_VPORT_STATE_OP_MOD_ESW_VPORT)
		return 0;
	vport->admin = CALL_IN(call, modify_vport_state_in, admin_state);
	if (n <= CHIP_MAX_VFS)
		chip_port_event(call->fn->pf, n);
	return 0;
}

/* A message is one packet for each PATH_MTU that it fills. */
void chip_count_rdma(struct chip_fn *from, struct chip_fn *to, u32 len)
{
	struct chip_vport *sender = chip_vport(from->pf, chip_vport_number(from));
	struct chip_vport *receiver = chip_vport(to->pf, chip_vport_number(to));
	u32 packets = max(DIV_ROUND_UP(len, PATH_MTU), 1);

	sender->rdma_tx_packets += packets;
	sender->rdma_tx_bytes += len;
	receiver->rdma_rx_packets += packets;
	receiver->rdma_rx_bytes += len;
}

/* mlx5_eswitch_get_vport_stats of eswitch.c, pma_cnt_ext_assign of drivers/infiniband/hw/mlx5/mad.c */
int chip_query_vport_counter(struct chip_call *call)
{
	int n;
	struct chip_vport *vport = named(call, &n);

	if (!vport)
		return MLX5_CMD_STAT_BAD_PARAM_ERR;
	MLX5_SET64(query_vport_counter_out, call->out, received_eth_unicast.packets, vport->rx_packets);
	MLX5_SET64(query_vport_counter_out, call->out, received_eth_unicast.octets, vport->rx_bytes);
	MLX5_SET64(query_vport_counter_out, call->out, transmitted_eth_unicast.packets, vport->tx_packets);
	MLX5_SET64(query_vport_counter_out, call->out, transmitted_eth_unicast.octets, vport->tx_bytes);
	MLX5_SET64(query_vport_counter_out, call->out, received_ib_unicast.packets, vport->rdma_rx_packets);
	MLX5_SET64(query_vport_counter_out, call->out, received_ib_unicast.octets, vport->rdma_rx_bytes);
	MLX5_SET64(query_vport_counter_out, call->out, transmitted_ib_unicast.packets, vport->rdma_tx_packets);
	MLX5_SET64(query_vport_counter_out, call->out, transmitted_ib_unicast.octets, vport->rdma_tx_bytes);
	return 0;
}
