// SPDX-License-Identifier: GPL-2.0
/* Flow tables, groups and entries as the driver wrote them (fs_cmd.c), and what they make of a frame. */
#include <linux/etherdevice.h>
#include <linux/seq_file.h>
#include <linux/slab.h>
#include <linux/unaligned.h>
#include "chip.h"

#define DESTS	64
#define STEPS	64	/* tables on the way of one frame */

struct table {
	u8 type, level;
	int vport, owner;	/* whose frames it is for; the vport of the driver that made it */
	bool miss;
	u32 miss_id;
	struct list_head entries;	/* by index: the first that matches counts */
};

struct group {
	int owner;
	u8 mask[CHIP_MATCH];
};

struct entry {
	struct list_head list;
	u32 index, group, action, tag, dests;
	u8 value[CHIP_MATCH];
	struct {
		u8 type;
		u32 id;
	} dest[DESTS];
};

/* The first table of a kind: each vport has one, the switch has one for all. */
static u32 root_key(u8 type, int vport)
{
	return (u32)type << 16 | (type == CHIP_FDB ? 0 : vport);
}

static u32 root_of(struct chip_pf *pf, u8 type, int vport)
{
	void *root = xa_load(&pf->roots, root_key(type, vport));

	return root ? xa_to_value(root) : 0;
}

/* All commands about tables have these fields at one place. */
static int asked_vport(struct chip_call *call)
{
	if (!CALL_IN(call, create_flow_table_in, other_vport))
		return chip_vport_number(call->fn);
	return CALL_IN(call, create_flow_table_in, vport_number);
}

static struct entry *entry_at(struct table *table, u32 index)
{
	struct entry *e;

	list_for_each_entry(e, &table->entries, list)
		if (e->index == index)
			return e;
	return NULL;
}

static void set_miss(struct table *table, void *context)
{
	table->miss = MLX5_GET(flow_table_context, context, table_miss_action) == MLX5_FLOW_TABLE_MISS_ACTION_FWD;
	table->miss_id = MLX5_GET(flow_table_context, context, table_miss_id);
}

int chip_create_table(struct chip_call *call)
{
	struct table *table = kzalloc(sizeof(*table), GFP_KERNEL);
	u32 id = chip_new_id(call->fn->pf);

	if (!table)
		return MLX5_CMD_STAT_NO_RES_ERR;
	table->type = CALL_IN(call, create_flow_table_in, table_type);
	table->level = CALL_IN(call, create_flow_table_in, flow_table_context.level);
	table->vport = asked_vport(call);
	table->owner = chip_vport_number(call->fn);
	INIT_LIST_HEAD(&table->entries);
	set_miss(table, MLX5_ADDR_OF(create_flow_table_in, call->in, flow_table_context));
	xa_store(&call->fn->pf->tables, id, table, GFP_KERNEL);
	CALL_OUT(call, create_flow_table_out, table_id, id);
	return 0;
}

int chip_modify_table(struct chip_call *call)
{
	struct table *table = xa_load(&call->fn->pf->tables, CALL_IN(call, modify_flow_table_in, table_id));

	if (!table)
		return MLX5_CMD_STAT_BAD_RES_ERR;
	if (CALL_IN(call, modify_flow_table_in, modify_field_select) & MLX5_MODIFY_FLOW_TABLE_MISS_TABLE_ID)
		set_miss(table, MLX5_ADDR_OF(modify_flow_table_in, call->in, flow_table_context));
	return 0;
}

static void free_table(struct table *table)
{
	struct entry *e, *next;

	list_for_each_entry_safe(e, next, &table->entries, list)
		kfree(e);
	kfree(table);
}

int chip_destroy_table(struct chip_call *call)
{
	u32 id = CALL_IN(call, destroy_flow_table_in, table_id);
	u8 type = CALL_IN(call, destroy_flow_table_in, table_type);
	struct chip_pf *pf = call->fn->pf;
	struct table *table;

	spin_lock_bh(&pf->steering);
	if (root_of(pf, type, asked_vport(call)) == id)
		xa_erase(&pf->roots, root_key(type, asked_vport(call)));
	table = xa_erase(&pf->tables, id);
	spin_unlock_bh(&pf->steering);
	if (!table)
		return MLX5_CMD_STAT_BAD_RES_ERR;
	free_table(table);
	return 0;
}

/* mlx5_cmd_update_root_ft of fs_cmd.c: operation 1 leaves a kind without a table */
int chip_set_root(struct chip_call *call)
{
	u32 key = root_key(CALL_IN(call, set_flow_table_root_in, table_type), asked_vport(call));
	struct chip_pf *pf = call->fn->pf;

	if (CALL_IN(call, set_flow_table_root_in, op_mod) == 1)
		xa_erase(&pf->roots, key);
	else
		xa_store(&pf->roots, key, xa_mk_value(CALL_IN(call, set_flow_table_root_in, table_id)), GFP_KERNEL);
	return 0;
}

/* Of the criteria only outer headers and miscellaneous parameters are modelled: legacy mode has no others. */
int chip_create_group(struct chip_call *call)
{
	u8 *criteria = MLX5_ADDR_OF(create_flow_group_in, call->in, match_criteria);
	u8 enabled = CALL_IN(call, create_flow_group_in, match_criteria_enable);
	struct group *group = kzalloc(sizeof(*group), GFP_KERNEL);
	u32 id = chip_new_id(call->fn->pf);

	if (!group)
		return MLX5_CMD_STAT_NO_RES_ERR;
	group->owner = chip_vport_number(call->fn);
	if (enabled & MLX5_MATCH_OUTER_HEADERS)
		memcpy(group->mask, criteria, CHIP_OUTER);
	if (enabled & MLX5_MATCH_MISC_PARAMETERS)
		memcpy(group->mask + CHIP_OUTER, criteria + CHIP_OUTER, CHIP_MATCH - CHIP_OUTER);
	xa_store(&call->fn->pf->groups, id, group, GFP_KERNEL);
	CALL_OUT(call, create_flow_group_out, group_id, id);
	return 0;
}

int chip_destroy_group(struct chip_call *call)
{
	struct chip_pf *pf = call->fn->pf;
	struct group *group;

	spin_lock_bh(&pf->steering);
	group = xa_erase(&pf->groups, CALL_IN(call, destroy_flow_group_in, group_id));
	spin_unlock_bh(&pf->steering);
	kfree(group);
	return group ? 0 : MLX5_CMD_STAT_BAD_RES_ERR;
}

static void read_entry(struct chip_call *call, struct entry *e)
{
	void *context = MLX5_ADDR_OF(set_fte_in, call->in, flow_context);
	u32 size = MLX5_ST_SZ_BYTES(dest_format) * (MLX5_GET(flow_context, context, extended_destination) ? 2 : 1), i;

	e->index = CALL_IN(call, set_fte_in, flow_index);
	e->group = MLX5_GET(flow_context, context, group_id);
	e->action = MLX5_GET(flow_context, context, action);
	e->tag = MLX5_GET(flow_context, context, flow_tag);
	e->dests = min_t(u32, MLX5_GET(flow_context, context, destination_list_size), DESTS);
	memcpy(e->value, MLX5_ADDR_OF(flow_context, context, match_value), CHIP_MATCH);
	for (i = 0; i < e->dests; i++) {
		void *dest = MLX5_ADDR_OF(flow_context, context, destination[0]) + i * size;

		e->dest[i].type = MLX5_GET(dest_format, dest, destination_type);
		e->dest[i].id = MLX5_GET(dest_format, dest, destination_id);
	}
}

static void insert_entry(struct table *table, struct entry *e)
{
	struct list_head *before = &table->entries;
	struct entry *other = entry_at(table, e->index);

	if (other) {
		list_replace(&other->list, &e->list);
		kfree(other);
		return;
	}
	list_for_each_entry(other, &table->entries, list) {
		if (other->index > e->index)
			break;
		before = &other->list;
	}
	list_add(&e->list, before);
}

/* mlx5_cmd_set_fte of fs_cmd.c: makes an entry, or writes one again */
int chip_set_entry(struct chip_call *call)
{
	struct chip_pf *pf = call->fn->pf;
	struct table *table = xa_load(&pf->tables, CALL_IN(call, set_fte_in, table_id));
	struct entry *e;

	if (!table)
		return MLX5_CMD_STAT_BAD_RES_ERR;
	e = kzalloc(sizeof(*e), GFP_KERNEL);
	if (!e)
		return MLX5_CMD_STAT_NO_RES_ERR;
	read_entry(call, e);
	spin_lock_bh(&pf->steering);
	insert_entry(table, e);
	spin_unlock_bh(&pf->steering);
	return 0;
}

int chip_delete_entry(struct chip_call *call)
{
	struct chip_pf *pf = call->fn->pf;
	struct table *table = xa_load(&pf->tables, CALL_IN(call, delete_fte_in, table_id));
	struct entry *e;

	if (!table)
		return MLX5_CMD_STAT_BAD_RES_ERR;
	spin_lock_bh(&pf->steering);
	e = entry_at(table, CALL_IN(call, delete_fte_in, flow_index));
	if (e)
		list_del(&e->list);
	spin_unlock_bh(&pf->steering);
	kfree(e);
	return e ? 0 : MLX5_CMD_STAT_BAD_RES_ERR;
}

/* What a driver leaves when its function is reset. */
void chip_drop_steering(struct chip_fn *fn)
{
	struct chip_pf *pf = fn->pf;
	struct table *table;
	struct group *group;
	unsigned long n;
	void *root;

	spin_lock_bh(&pf->steering);
	xa_for_each(&pf->tables, n, table)
		if (table->owner == chip_vport_number(fn)) {
			xa_erase(&pf->tables, n);
			free_table(table);
		}
	xa_for_each(&pf->groups, n, group)
		if (group->owner == chip_vport_number(fn)) {
			xa_erase(&pf->groups, n);
			kfree(group);
		}
	xa_for_each(&pf->roots, n, root)
		if (!xa_load(&pf->tables, xa_to_value(root)))
			xa_erase(&pf->roots, n);
	spin_unlock_bh(&pf->steering);
}

/* How many entries the first table of a kind and vport has; -1: there is none. */
int chip_entries(struct chip_pf *pf, u8 type, int vport)
{
	struct table *table = xa_load(&pf->tables, root_of(pf, type, vport));

	return table ? list_count_nodes(&table->entries) : -1;
}

static void show_mac(struct seq_file *to, const char *name, u8 *mask, const u8 *value)
{
	if (!is_broadcast_ether_addr(mask))
		return;
	seq_printf(to, " %s %pM", name, value);
	eth_zero_addr(mask);
}

/* What an entry compares: whole addresses by name, otherwise words with their masks. */
static void show_match(struct seq_file *to, const struct group *group, const struct entry *e)
{
	u32 smac = MLX5_BYTE_OFF(fte_match_set_lyr_2_4, smac_47_16), i;
	u32 dmac = MLX5_BYTE_OFF(fte_match_set_lyr_2_4, dmac_47_16);
	u8 mask[CHIP_MATCH];

	memcpy(mask, group->mask, CHIP_MATCH);
	show_mac(to, "dmac", mask + dmac, e->value + dmac);
	show_mac(to, "smac", mask + smac, e->value + smac);
	for (i = 0; i < CHIP_MATCH; i += 4) {
		u32 compared = get_unaligned_be32(mask + i);

		if (compared)
			seq_printf(to, " +%u %x/%x", i, get_unaligned_be32(e->value + i) & compared, compared);
	}
}

/* Where frames go. Numbers of objects other than vports and tables differ from one probe to the next. */
static void show_dest(struct seq_file *to, struct chip_pf *pf, u8 type, u32 id)
{
	struct table *table = type == MLX5_IFC_FLOW_DESTINATION_TYPE_FLOW_TABLE ? xa_load(&pf->tables, id) : NULL;
	u32 number = table ? table->level : type == MLX5_IFC_FLOW_DESTINATION_TYPE_VPORT ? id : 0;

	seq_printf(to, " to %u of type %u", number, type);
}

static void show_entry(struct seq_file *to, struct chip_pf *pf, struct entry *e)
{
	struct group *group = xa_load(&pf->groups, e->group);
	u32 i;

	if (group)
		show_match(to, group, e);
	seq_printf(to, " action %#x tag %u", e->action, e->tag);
	for (i = 0; i < e->dests; i++)
		show_dest(to, pf, e->dest[i].type, e->dest[i].id);
	seq_putc(to, '\n');
}

void chip_show_steering(struct seq_file *to, struct chip_pf *pf)
{
	struct table *table;
	struct group *group;
	unsigned long n;
	struct entry *e;

	spin_lock_bh(&pf->steering);
	xa_for_each(&pf->tables, n, table) {
		seq_printf(to, "%d table %u level %u owner %d vport %d\n", pf->index, table->type, table->level,
			   table->owner - 1, table->vport - 1);
		list_for_each_entry(e, &table->entries, list) {
			seq_printf(to, "%d entry %u level %u owner %d vport %d", pf->index, table->type, table->level,
				   table->owner - 1, table->vport - 1);
			show_entry(to, pf, e);
		}
	}
	xa_for_each(&pf->groups, n, group)
		seq_printf(to, "%d group owner %d\n", pf->index, group->owner - 1);
	spin_unlock_bh(&pf->steering);
}

static struct entry *first_match(struct chip_pf *pf, struct table *table, const u8 *match)
{
	struct entry *e;
	int i;

	list_for_each_entry(e, &table->entries, list) {
		struct group *group = xa_load(&pf->groups, e->group);

		for (i = 0; group && i < CHIP_MATCH && !((match[i] ^ e->value[i]) & group->mask[i]); i++)
			;
		if (i == CHIP_MATCH)
			return e;
	}
	return NULL;
}

/* Through the tables of a kind, from its first. What is forwarded to is in to[]. */
enum chip_walk chip_walk(struct chip_pf *pf, u8 type, int vport, const u8 *match, struct chip_dest *to, u32 *n, u32 max)
{
	u32 next[16] = { root_of(pf, type, vport) }, waiting = next[0] ? 1 : 0, step, i;
	enum chip_walk verdict = waiting ? CHIP_NO_RULE : CHIP_NO_TABLE;

	*n = 0;
	for (step = 0; waiting && step < STEPS; step++) {
		struct table *table = xa_load(&pf->tables, next[--waiting]);
		struct entry *e = table ? first_match(pf, table, match) : NULL;

		if (table && !e && table->miss)
			next[waiting++] = table->miss_id;
		if (!e)
			continue;
		if (e->action & MLX5_FLOW_CONTEXT_ACTION_DROP)
			return CHIP_DROP;
		if (e->action & MLX5_FLOW_CONTEXT_ACTION_ALLOW)
			verdict = CHIP_ALLOW;
		if (!(e->action & MLX5_FLOW_CONTEXT_ACTION_FWD_DEST))
			continue;
		for (i = 0; i < e->dests; i++) {
			if (e->dest[i].type == MLX5_IFC_FLOW_DESTINATION_TYPE_FLOW_TABLE) {
				if (waiting < ARRAY_SIZE(next))
					next[waiting++] = e->dest[i].id;
			} else if (*n < max) {
				verdict = CHIP_FORWARD;
				to[(*n)++] = (struct chip_dest){ e->dest[i].type, e->dest[i].id, e->tag };
			}
		}
	}
	return verdict;
}
