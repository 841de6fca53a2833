// SPDX-License-Identifier: GPL-2.0
/*
 * Scheduling elements, as the driver writes them. Nothing is shaped: what a card does with a weight is not known here.
 * A VF that never had an element "lies outside" in report.c.
 */
#include <linux/mlx5/vport.h>
#include "chip.h"

static struct chip_vport *owner(struct chip_pf *pf, u32 element)
{
	int n;

	for (n = 0; n <= CHIP_MAX_VFS; n++)
		if (element && pf->vport[n].element == element)
			return &pf->vport[n];
	return NULL;
}

/* esw_qos_vport_create_sched_element and esw_qos_create of esw/qos.c: an element of a vport, or the root. */
int chip_create_element(struct chip_call *call)
{
	void *context = MLX5_ADDR_OF(create_scheduling_element_in, call->in, scheduling_context);
	struct chip_pf *pf = call->fn->pf;
	struct chip_vport *vport;
	u32 id;

	if (!chip_is_pf(call->fn))
		return MLX5_CMD_STAT_BAD_OP_ERR;
	id = chip_new_id(pf);
	pf->elements++;
	CALL_OUT(call, create_scheduling_element_out, scheduling_element_id, id);
	if (MLX5_GET(scheduling_context, context, element_type) != SCHEDULING_CONTEXT_ELEMENT_TYPE_VPORT)
		return 0;
	/* vport_element.vport_number is the lower half of the attributes */
	vport = chip_vport(pf, MLX5_GET(scheduling_context, context, element_attributes) & 0xffff);
	if (!vport)
		return MLX5_CMD_STAT_BAD_PARAM_ERR;
	vport->element = id;
	vport->share = MLX5_GET(scheduling_context, context, bw_share);
	vport->max_bw = MLX5_GET(scheduling_context, context, max_average_bw);
	return 0;
}

/* esw_qos_vport_config of esw/qos.c */
int chip_modify_element(struct chip_call *call)
{
	void *context = MLX5_ADDR_OF(modify_scheduling_element_in, call->in, scheduling_context);
	u32 fields = CALL_IN(call, modify_scheduling_element_in, modify_bitmask);
	struct chip_vport *vport = owner(call->fn->pf, CALL_IN(call, modify_scheduling_element_in, scheduling_element_id));

	if (!chip_is_pf(call->fn))
		return MLX5_CMD_STAT_BAD_OP_ERR;
	if (!vport)
		return MLX5_CMD_STAT_BAD_RES_ERR;
	if (fields & MODIFY_SCHEDULING_ELEMENT_IN_MODIFY_BITMASK_BW_SHARE)
		vport->share = MLX5_GET(scheduling_context, context, bw_share);
	if (fields & MODIFY_SCHEDULING_ELEMENT_IN_MODIFY_BITMASK_MAX_AVERAGE_BW)
		vport->max_bw = MLX5_GET(scheduling_context, context, max_average_bw);
	return 0;
}

/* mlx5_esw_qos_vport_disable of esw/qos.c */
int chip_destroy_element(struct chip_call *call)
{
	struct chip_pf *pf = call->fn->pf;
	struct chip_vport *vport = owner(pf, CALL_IN(call, destroy_scheduling_element_in, scheduling_element_id));

	if (!chip_is_pf(call->fn))
		return MLX5_CMD_STAT_BAD_OP_ERR;
	if (pf->elements)
		pf->elements--;
	if (vport)
		vport->element = vport->share = vport->max_bw = 0;
	return 0;
}
