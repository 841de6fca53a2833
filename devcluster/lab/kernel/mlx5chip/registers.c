// SPDX-License-Identifier: GPL-2.0
/* Behind BAR0: the initialization segment, the command queue in the driver's memory, doorbells. */
#include <linux/moduleparam.h>
#include <linux/slab.h>
#include <linux/unaligned.h>
#include <linux/workqueue.h>
#include "chip.h"

#define LOG_SLOTS	5
#define LOG_STRIDE	6
#define SEG(field)	offsetof(struct mlx5_init_seg, field)
#define INLINE_BYTES	16

/* After how long the driver gives a command up, tout_convert_iseg_to_ms of lib/tout.c; 0: its own minute. */
static unsigned int command_ms;
module_param(command_ms, uint, 0644);
/* A fatal error: the syndrome of the health buffer, which mlx5_health_check_fatal_sensors of health.c reads. */
static unsigned int syndrome;
module_param(syndrome, uint, 0644);

/* A mailbox: 16 bytes in the slot, the rest in a chain of blocks (mlx5_copy_to_msg, mlx5_copy_from_msg of cmd.c). */
static void gather(const __be32 *first, u64 next, u8 *to, u32 len)
{
	u32 n = min_t(u32, len, INLINE_BYTES);

	memcpy(to, first, n);
	for (to += n, len -= n; len && next; to += n, len -= n) {
		struct mlx5_cmd_prot_block *block = __va(next);

		n = min_t(u32, len, MLX5_CMD_DATA_BLOCK_SIZE);
		memcpy(to, block->data, n);
		next = be64_to_cpu(block->next);
	}
}

static void scatter(__be32 *first, u64 next, const u8 *from, u32 len, u8 token)
{
	u32 n = min_t(u32, len, INLINE_BYTES);

	memcpy(first, from, n);
	for (from += n, len -= n; len && next; from += n, len -= n) {
		struct mlx5_cmd_prot_block *block = __va(next);

		n = min_t(u32, len, MLX5_CMD_DATA_BLOCK_SIZE);
		memcpy(block->data, from, n);
		block->token = token;
		next = be64_to_cpu(block->next);
	}
}

/* An answer of which the driver is told now or later. Signatures are not checked: mlx5_cmd_init of cmd.c. */
struct answer {
	struct delayed_work work;
	struct chip_fn *fn;
	int slot;
	u64 queue;
};

static void tell(struct chip_fn *fn, u64 queue, int slot)
{
	struct mlx5_cmd_layout *lay = __va(queue + (slot << LOG_STRIDE));
	struct mlx5_eqe_cmd done = { .vector = cpu_to_be32(1 << slot) };

	lay->status_own = 0;	/* poll_timeout of cmd.c: the software owns it again */
	chip_event(fn, MLX5_EVENT_TYPE_CMD, 0, &done, sizeof(done));
}

static void tell_late(struct work_struct *work)
{
	struct answer *answer = container_of(to_delayed_work(work), struct answer, work);

	/* Not to a driver that has gone meanwhile, whose memory others have now. */
	if (answer->fn->cmdq == answer->queue)
		tell(answer->fn, answer->queue, answer->slot);
	kfree(answer);
}

static void answer(struct chip_fn *fn, int slot, unsigned int late_ms)
{
	struct answer *answer;

	if (!late_ms)
		return tell(fn, fn->cmdq, slot);
	answer = kmalloc(sizeof(*answer), GFP_KERNEL);
	if (!answer)
		return;
	*answer = (struct answer){ .fn = fn, .slot = slot, .queue = fn->cmdq };
	INIT_DELAYED_WORK(&answer->work, tell_late);
	schedule_delayed_work(&answer->work, msecs_to_jiffies(late_ms));
}

static void execute(struct chip_fn *fn, int slot)
{
	struct mlx5_cmd_layout *lay = __va(fn->cmdq + (slot << LOG_STRIDE));
	struct chip_call call = {
		.fn = fn,
		.inlen = be32_to_cpu(lay->inlen),
		.outlen = be32_to_cpu(lay->outlen),
	};
	struct chip_verdict verdict = { .answered = true };
	int status;

	/* Room for the largest command past both: a field that a command lacks is then read as 0, and written to nobody. */
	call.in = kvzalloc(round_up(call.inlen, 4) + MLX5_UN_SZ_BYTES(hca_cap_union), GFP_KERNEL);
	call.out = kvzalloc(round_up(call.outlen, 4) + MLX5_UN_SZ_BYTES(hca_cap_union), GFP_KERNEL);
	if (call.in && call.out) {
		gather(lay->in, be64_to_cpu(lay->in_ptr), call.in, call.inlen);
		call.op = MLX5_GET(query_hca_cap_in, call.in, opcode);
		call.mod = MLX5_GET(query_hca_cap_in, call.in, op_mod);
		verdict = chip_judge(fn, call.op);
		status = verdict.effect ? chip_run(&call) : 0;
		status = verdict.status ?: status;
		chip_say(2, "vf %d command %x mod %x: %d\n", fn->vf, call.op, call.mod, status);
		/* mlx5_cmd_check of cmd.c */
		MLX5_SET(query_hca_cap_out, call.out, status, status);
		MLX5_SET(query_hca_cap_out, call.out, syndrome, status ? 0x5eed0000 | call.op : 0);
		if (verdict.answered)
			scatter(lay->out, be64_to_cpu(lay->out_ptr), call.out, call.outlen, lay->token);
	}
	kvfree(call.in);
	kvfree(call.out);
	if (verdict.answered)
		answer(fn, slot, verdict.late_ms);
}

static u32 read_segment(unsigned int offset)
{
	u64 now = ktime_get_ns();

	switch (offset) {
	case SEG(fw_rev):	/* fw_rev_maj, fw_rev_min of driver.h: 22.35.1012 */
		return 22 | 35 << 16;
	case SEG(cmdif_rev_fw_sub):	/* CMD_IF_REV of cmd.c */
		return 5 << 16 | 1012;
	case SEG(cmdq_addr_l_sz):	/* mlx5_cmd_enable of cmd.c */
		return LOG_SLOTS << 4 | LOG_STRIDE;
	case SEG(initializing):	/* wait_fw_init of main.c */
		return 0;
	case SEG(internal_timer_h):	/* mlx5_read_time of lib/clock.c */
	case SEG(real_time_h):
		return now >> 32;
	case SEG(internal_timer_l):
	case SEG(real_time_l):
		return now;
	case SEG(cmd_exec_to):
	case SEG(cmd_q_init_to):
		return command_ms;
	case SEG(health.irisc_index):
		return syndrome << 16;
	case SEG(health_counter):	/* poll_health of health.c: it goes on */
		return jiffies;
	}
	return 0;
}

unsigned long chip_read(void *priv, unsigned int offset, int size)
{
	struct chip_fn *fn = priv;
	__be32 value;
	u64 entry = 0;

	if (offset >= CHIP_MSIX_TABLE && offset < CHIP_MSIX_TABLE + sizeof(fn->msix)) {
		memcpy(&entry, (u8 *)fn->msix + offset - CHIP_MSIX_TABLE, size);
		return entry;
	}
	value = cpu_to_be32(read_segment(offset & ~3));
	if (size == 1)
		return ((u8 *)&value)[offset & 3];
	return size == 2 ? ((u16 *)&value)[offset >> 1 & 1] : (__force u32)value;
}

/* A doorbell page: EQs at 0x40 and 0x48 (eq_update_ci of eq.c), CQs at MLX5_CQ_DOORBELL, work queues at MLX5_BF_OFFSET. */
static void write_doorbell(struct chip_fn *fn, u32 at, int size, unsigned long value)
{
	u32 first = be32_to_cpu((__force __be32)value), second = be32_to_cpu((__force __be32)(value >> 32));
	struct chip_sq *sq;

	if (at == 0x40 || at == 0x48) {
		chip_eq_doorbell(fn, first, at == 0x40);
	} else if (at == MLX5_CQ_DOORBELL && size == 8) {
		chip_arm_cq(fn, second & 0xffffff, first);	/* mlx5_cq_arm of include/linux/mlx5/cq.h */
	} else if (at >= MLX5_BF_OFFSET && size == 8) {
		sq = xa_load(&fn->sqs, second >> 8);	/* mlx5_write64 of the control segment */
		if (sq)
			chip_ring_sq(sq);
		else
			chip_ring_qp(fn, second >> 8);
	}
}

void chip_write(void *priv, unsigned int offset, int size, unsigned long value)
{
	struct chip_fn *fn = priv;
	u32 word = be32_to_cpu((__force __be32)value);
	int i;

	if (offset >= CHIP_MSIX_TABLE && offset < CHIP_MSIX_TABLE + sizeof(fn->msix)) {
		memcpy((u8 *)fn->msix + offset - CHIP_MSIX_TABLE, &value, size);
		return;
	}
	if (offset >= CHIP_FIRST_UAR * PAGE_SIZE) {
		write_doorbell(fn, offset & (PAGE_SIZE - 1), size, value);
		return;
	}
	switch (offset) {
	case SEG(cmdq_addr_h):
		fn->cmdq_high = word;
		break;
	case SEG(cmdq_addr_l_sz):	/* bits 8 to 10: mlx5_set_nic_state of health.c */
		if (!(word >> 8 & 7))
			fn->cmdq = (u64)fn->cmdq_high << 32 | (word & ~0xfff);
		break;
	case SEG(cmd_dbell):
		for (i = 0; fn->cmdq && i < 1 << LOG_SLOTS; i++)
			if (word >> i & 1)
				execute(fn, i);
		break;
	}
}
