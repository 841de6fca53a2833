// SPDX-License-Identifier: GPL-2.0
/* Flow tables, groups and entries as the driver wrote them (fs_cmd.c), and what they make of a frame. */
#include <linux/etherdevice.h>
#include <linux/if_vlan.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/slab.h>
#include <linux/unaligned.h>
#include "chip.h"

#define OUTER	64	/* bytes of the outer headers in a match */
#define DESTS	64
#define STEPS	64	/* tables on the way of one frame */

struct table {
	u8 type;
	int owner;	/* the vport of the driver that made it */
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
		memcpy(group->mask, criteria, OUTER);
	if (enabled & MLX5_MATCH_MISC_PARAMETERS)
		memcpy(group->mask + OUTER, criteria + OUTER, CHIP_MATCH - OUTER);
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

void chip_count_steering(struct chip_pf *pf, u32 *tables, u32 *groups, u32 *entries)
{
	struct table *table;
	struct group *group;
	unsigned long n;

	*tables = *groups = *entries = 0;
	xa_for_each(&pf->tables, n, table) {
		++*tables;
		*entries += list_count_nodes(&table->entries);
	}
	xa_for_each(&pf->groups, n, group)
		++*groups;
}

/* A frame as a match sees it: fte_match_set_lyr_2_4 and fte_match_set_misc of mlx5_ifc.h. */
#define SET(field, value)	MLX5_SET(fte_match_set_lyr_2_4, match, field, value)
#define AT(field)		MLX5_ADDR_OF(fte_match_set_lyr_2_4, match, field)

static void match_ports(u8 *match, u8 protocol, const u8 *l4, u32 len)
{
	if (protocol == IPPROTO_UDP && len >= 8) {
		SET(udp_sport, get_unaligned_be16(l4));
		SET(udp_dport, get_unaligned_be16(l4 + 2));
	} else if (protocol == IPPROTO_TCP && len >= 20) {
		SET(tcp_sport, get_unaligned_be16(l4));
		SET(tcp_dport, get_unaligned_be16(l4 + 2));
	}
}

static void match_ip(u8 *match, u16 ethertype, const u8 *l3, u32 len)
{
	const struct ipv6hdr *ip6 = (const void *)l3;
	const struct iphdr *ip = (const void *)l3;

	if (ethertype == ETH_P_IP && len >= sizeof(*ip)) {
		SET(ip_version, 4);
		SET(ip_protocol, ip->protocol);
		memcpy(AT(src_ipv4_src_ipv6.ipv4_layout.ipv4), &ip->saddr, sizeof(ip->saddr));
		memcpy(AT(dst_ipv4_dst_ipv6.ipv4_layout.ipv4), &ip->daddr, sizeof(ip->daddr));
		if (len >= ip->ihl * 4)
			match_ports(match, ip->protocol, l3 + ip->ihl * 4, len - ip->ihl * 4);
	} else if (ethertype == ETH_P_IPV6 && len >= sizeof(*ip6)) {
		SET(ip_version, 6);
		SET(ip_protocol, ip6->nexthdr);
		memcpy(AT(src_ipv4_src_ipv6), &ip6->saddr, sizeof(ip6->saddr));
		memcpy(AT(dst_ipv4_dst_ipv6), &ip6->daddr, sizeof(ip6->daddr));
	}
}

void chip_headers(u8 *match, const u8 *frame, u32 len, int from)
{
	u16 ethertype = get_unaligned_be16(frame + 2 * ETH_ALEN);
	u32 at = ETH_HLEN;

	memset(match, 0, CHIP_MATCH);
	ether_addr_copy(AT(dmac_47_16), frame);
	memcpy(AT(smac_47_16), frame + ETH_ALEN, ETH_ALEN);
	if (ethertype == ETH_P_8021Q && len >= VLAN_ETH_HLEN) {
		u16 tci = get_unaligned_be16(frame + ETH_HLEN);

		SET(cvlan_tag, 1);
		SET(first_vid, tci & VLAN_VID_MASK);
		SET(first_prio, tci >> VLAN_PRIO_SHIFT);
		ethertype = get_unaligned_be16(frame + ETH_HLEN + 2);
		at += VLAN_HLEN;
	}
	SET(ethertype, ethertype);
	match_ip(match, ethertype, frame + at, len - at);
	MLX5_SET(fte_match_set_misc, match + OUTER, source_port, from);
}
#undef SET
#undef AT

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
