// SPDX-License-Identifier: GPL-2.0
/* The life of a function: from INIT_HCA to TEARDOWN_HCA, its pages and its doorbell pages. */
#include <linux/slab.h>
#include <linux/unaligned.h>
#include "chip.h"

struct chip_fn *chip_function(struct chip_pf *pf, int vport)
{
	if (!vport)
		return &pf->fn;
	return vport > 0 && vport <= CHIP_MAX_VFS ? pf->vf[vport - 1] : NULL;
}

void chip_fn_init(struct chip_fn *fn, struct chip_pf *pf, int vf)
{
	struct xarray *all[] = { &fn->eqs, &fn->cqs, &fn->sqs, &fn->rqs, &fn->tirs, &fn->rqts, &fn->mkeys, &fn->gids,
				 &fn->registers };
	int i;

	fn->pf = pf;
	fn->vf = vf;
	spin_lock_init(&fn->lock);
	for (i = 0; i < ARRAY_SIZE(all); i++)
		xa_init_flags(all[i], XA_FLAGS_ALLOC1);
	for (i = 0; i < CHIP_VECTORS; i++)
		fn->msix[i * 4 + 3] = PCI_MSIX_ENTRY_CTRL_MASKBIT;
}

/* What a driver made and has not destroyed ends with it. Vports outlive it. */
void chip_fn_reset(struct chip_fn *fn)
{
	int i;

	fn->initialized = false;
	chip_drop_qps(fn);
	chip_drop_queues(fn);
	chip_drop_steering(fn);
	for (i = 0; i < CHIP_CAP_TYPES; i++) {
		kfree(fn->cap[i]);
		fn->cap[i] = NULL;
	}
	bitmap_zero(fn->uars, CHIP_UARS);
}

int chip_init_hca(struct chip_call *call)
{
	call->fn->initialized = true;
	return 0;
}

int chip_teardown_hca(struct chip_call *call)
{
	chip_fn_reset(call->fn);
	return 0;
}

/* mlx5_core_set_issi of main.c: bit 1, without which the driver does not come up on Ethernet. */
int chip_query_issi(struct chip_call *call)
{
	CALL_OUT(call, query_issi_out, supported_issi_dw0, 1 << 1);
	return 0;
}

/* mlx5_cmd_query_pages of pagealloc.c: 1 before INIT_HCA, 2 to initialize. How many a card wants is not ours to say. */
int chip_query_pages(struct chip_call *call)
{
	CALL_OUT(call, query_pages_out, num_pages, call->mod == 1 ? 16 : call->mod == 2 ? 32 : 0);
	return 0;
}

enum { PAGES_CANT_GIVE, PAGES_GIVE, PAGES_TAKE };	/* pagealloc.c */

static int give_pages(struct chip_fn *fn, struct chip_call *call, u32 n)
{
	u64 *more;
	u32 i;

	if (fn->npages + n > fn->room) {
		more = krealloc_array(fn->pages, fn->npages + n + 64, sizeof(*more), GFP_KERNEL);
		if (!more)
			return MLX5_CMD_STAT_NO_RES_ERR;
		fn->pages = more;
		fn->room = fn->npages + n + 64;
	}
	for (i = 0; i < n; i++)
		fn->pages[fn->npages++] = get_unaligned_be64(MLX5_ADDR_OF(manage_pages_in, call->in, pas[i]));
	return 0;
}

/* reclaim_pages of pagealloc.c takes as many back as the answer says. */
static int take_pages(struct chip_fn *fn, struct chip_call *call, u32 n)
{
	u32 room = (call->outlen - MLX5_ST_SZ_BYTES(manage_pages_out)) / sizeof(u64), i;

	for (i = 0; i < n && i < room && fn->npages; i++)
		put_unaligned_be64(fn->pages[--fn->npages], MLX5_ADDR_OF(manage_pages_out, call->out, pas[i]));
	CALL_OUT(call, manage_pages_out, output_num_entries, i);
	return 0;
}

int chip_manage_pages(struct chip_call *call)
{
	u32 n = CALL_IN(call, manage_pages_in, input_num_entries), vport = CALL_IN(call, manage_pages_in, function_id);
	struct chip_fn *fn = vport ? chip_function(call->fn->pf, vport) : call->fn;

	if (!fn)
		return MLX5_CMD_STAT_BAD_PARAM_ERR;
	if (call->mod == PAGES_GIVE)
		return give_pages(fn, call, n);
	return call->mod == PAGES_TAKE ? take_pages(fn, call, n) : 0;
}

/* mlx5_query_board_id of fw.c */
int chip_query_adapter(struct chip_call *call)
{
	memcpy(MLX5_ADDR_OF(query_adapter_out, call->out, query_adapter_struct.vsd_contd_psid), "MT_0000000359", 13);
	CALL_OUT(call, query_adapter_out, query_adapter_struct.vsd_vendor_id, 0x15b3);
	CALL_OUT(call, query_adapter_out, query_adapter_struct.ieee_vendor_id, 0x2c9);
	return 0;
}

/* mlx5r_cmd_query_special_mkeys of drivers/infiniband/hw/mlx5/cmd.c; chip_copy() takes the first for all memory. */
int chip_query_special(struct chip_call *call)
{
	CALL_OUT(call, query_special_contexts_out, resd_lkey, 0xff00);
	CALL_OUT(call, query_special_contexts_out, null_mkey, 0x200);
	CALL_OUT(call, query_special_contexts_out, dump_fill_mkey, 0x300);
	return 0;
}

/* The index of a page of BAR0: uar2pfn of uar.c. */
int chip_alloc_uar(struct chip_call *call)
{
	u32 n = find_next_zero_bit(call->fn->uars, CHIP_UARS, CHIP_FIRST_UAR);

	if (n >= CHIP_UARS)
		return MLX5_CMD_STAT_NO_RES_ERR;
	set_bit(n, call->fn->uars);
	chip_answer_id(call, n);
	return 0;
}

int chip_dealloc_uar(struct chip_call *call)
{
	clear_bit(CALL_IN(call, dealloc_uar_in, uar) % CHIP_UARS, call->fn->uars);
	return 0;
}
