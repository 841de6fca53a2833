// SPDX-License-Identifier: GPL-2.0
/* The port and its registers, all by ACCESS_REG (mlx5_core_access_reg of port.c). */
#include <linux/mlx5/port.h>
#include <linux/slab.h>
#include <rdma/ib_verbs.h>
#include "chip.h"

/* Remembered: a register reads as it was written, for example PFCC (mlx5_set_port_pause, mlx5_query_port_pause). */
static void keep(struct chip_fn *fn, u32 id, const void *data, u32 len)
{
	void *copy = kmemdup(data, len, GFP_KERNEL), *old;

	if (!copy)
		return;
	old = xa_store(&fn->registers, id, copy, GFP_KERNEL);
	kfree(xa_is_err(old) ? NULL : old);
}

/* mlx5_set_port_admin_status, when the PF's netdev is opened or closed. VFs follow unless they were told otherwise. */
static void set_port_state(struct chip_pf *pf, bool up)
{
	int n;

	if (up == pf->port_up)
		return;
	pf->port_up = up;
	chip_wire_carrier(pf);
	for (n = 0; n <= CHIP_MAX_VFS; n++)
		chip_port_event(pf, n);
}

static void write_register(struct chip_fn *fn, u32 id, void *data, u32 len)
{
	if (id == MLX5_REG_PAOS && chip_is_pf(fn))
		set_port_state(fn->pf, MLX5_GET(paos_reg, data, admin_status) == MLX5_PORT_UP);
	if (id == MLX5_REG_PMTU && chip_is_pf(fn))	/* mlx5_set_port_mtu: the largest frame */
		fn->pf->frame_max = MLX5_GET(pmtu_reg, data, admin_mtu);
	keep(fn, id, data, len);
}

static void read_speed(struct chip_pf *pf, void *out)
{
	if (chip_is_ib(pf)) {	/* mlx5_query_hca_port, translate_active_width of drivers/infiniband/hw/mlx5/main.c */
		MLX5_SET(ptys_reg, out, ib_link_width_capability, MLX5_PTYS_WIDTH_1X | MLX5_PTYS_WIDTH_2X | MLX5_PTYS_WIDTH_4X);
		MLX5_SET(ptys_reg, out, ib_link_width_oper, MLX5_PTYS_WIDTH_4X);
		MLX5_SET(ptys_reg, out, ib_proto_capability, 0x7f);
		MLX5_SET(ptys_reg, out, ib_proto_oper, IB_SPEED_HDR);
		return;
	}
	/* mlx5e_port_linkspeed of en/port.c */
	MLX5_SET(ptys_reg, out, eth_proto_capability, MLX5E_PROT_MASK(MLX5E_25GBASE_CR));
	MLX5_SET(ptys_reg, out, eth_proto_admin, MLX5E_PROT_MASK(MLX5E_25GBASE_CR));
	MLX5_SET(ptys_reg, out, eth_proto_oper, pf->port_up ? MLX5E_PROT_MASK(MLX5E_25GBASE_CR) : 0);
	MLX5_SET(ptys_reg, out, connector_type, MLX5E_PORT_DA);
}

static void read_register(struct chip_fn *fn, u32 id, void *out, u32 len)
{
	u8 state = fn->pf->port_up ? MLX5_PORT_UP : MLX5_PORT_DOWN;
	void *written = xa_load(&fn->registers, id);

	if (written)
		memcpy(out, written, len);
	switch (id) {
	case MLX5_REG_PAOS:	/* mlx5_query_port_admin_status */
		MLX5_SET(paos_reg, out, admin_status, state);
		MLX5_SET(paos_reg, out, oper_status, state);
		break;
	case MLX5_REG_PTYS:	/* mlx5_query_port_ptys */
		read_speed(fn->pf, out);
		break;
	case MLX5_REG_PMTU:	/* mlx5_query_port_max_mtu, mlx5_query_port_oper_mtu */
		MLX5_SET(pmtu_reg, out, max_mtu, chip_is_ib(fn->pf) ? 4096 : CHIP_LARGEST_FRAME);
		MLX5_SET(pmtu_reg, out, admin_mtu, chip_is_ib(fn->pf) ? 4096 : fn->pf->frame_max);
		MLX5_SET(pmtu_reg, out, oper_mtu, chip_is_ib(fn->pf) ? 4096 : fn->pf->frame_max);
		break;
	case MLX5_REG_PMLP:	/* mlx5_query_module_num */
		MLX5_SET(pmlp_reg, out, width, 4);
		break;
	case MLX5_REG_PVLC:	/* mlx5_query_port_vl_hw_cap */
		MLX5_SET(pvlc_reg, out, vl_hw_cap, 4);
		break;
	}
}

int chip_access_register(struct chip_call *call)
{
	u32 id = CALL_IN(call, access_register_in, register_id), len = min(call->inlen, call->outlen);
	void *in = MLX5_ADDR_OF(access_register_in, call->in, register_data);
	void *out = MLX5_ADDR_OF(access_register_out, call->out, register_data);

	if (len < MLX5_ST_SZ_BYTES(access_register_out))
		return MLX5_CMD_STAT_BAD_INP_LEN_ERR;
	len -= MLX5_ST_SZ_BYTES(access_register_out);
	chip_say(2, "vf %d register %#x %s\n", call->fn->vf, id, call->mod ? "read" : "written");
	memcpy(out, in, len);
	if (call->mod)
		read_register(call->fn, id, out, len);
	else
		write_register(call->fn, id, in, len);
	return 0;
}
