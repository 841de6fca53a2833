// SPDX-License-Identifier: GPL-2.0
/*
 * What the firmware has, one line each, below /sys/module/mlx5chip/parameters:
 *
 *   shares    of the first PF: each VF with its weight, or "outside" of rate scheduling
 *   vports    of the first PF: what each VF's vport has
 *
 * and in /proc/mlx5chip, of each PF: flow tables with their entries, flow groups, and how many scheduling elements are
 * no vport's.
 */
#include <linux/mlx5/vport.h>
#include <linux/moduleparam.h>
#include <linux/proc_fs.h>
#include <linux/seq_file.h>
#include "chip.h"

static int show_shares(char *to, const struct kernel_param *param)
{
	int vfs = chip_npf ? chip_numvfs(chip_pfs[0]) : 0, n, len = 0;

	for (n = 0; n < vfs && len < PAGE_SIZE - 32; n++) {
		struct chip_vport *vport = &chip_pfs[0]->vport[n + 1];

		len += vport->element ? sysfs_emit_at(to, len, "%d %u\n", n, vport->share) :
					sysfs_emit_at(to, len, "%d outside\n", n);
	}
	return len;
}

#define NIC(field)	MLX5_GET64(nic_vport_context, vport->nic, field)
#define ESW(field)	MLX5_GET(esw_vport_context, vport->esw, field)
#define HCA(field)	MLX5_GET64(hca_vport_context, vport->hca, field)

static int show_vport(char *to, int len, struct chip_pf *pf, int n)
{
	struct chip_vport *vport = &pf->vport[n];
	u8 *mac = (u8 *)MLX5_ADDR_OF(nic_vport_context, vport->nic, permanent_address) + 2;

	if (chip_is_ib(pf))
		return sysfs_emit_at(to, len, "%d node_guid %llx port_guid %llx policy %d\n", n - 1, HCA(node_guid),
				     HCA(port_guid), MLX5_GET(hca_vport_context, vport->hca, vport_state_policy));
	return sysfs_emit_at(to, len, "%d mac %pM guid %llx vlan %d qos %d strip %d insert %d state %d weight %d max %d ingress %d egress %d\n",
			     n - 1, mac, NIC(node_guid), ESW(cvlan_id), ESW(cvlan_pcp), ESW(vport_cvlan_strip),
			     ESW(vport_cvlan_insert), vport->admin, vport->element ? (int)vport->share : -1, vport->max_bw,
			     chip_entries(pf, CHIP_INGRESS_ACL, n), chip_entries(pf, CHIP_EGRESS_ACL, n));
}

static int show_vports(char *to, const struct kernel_param *param)
{
	int vfs = chip_npf ? chip_numvfs(chip_pfs[0]) : 0, n, len = 0;

	for (n = 1; n <= vfs && len < PAGE_SIZE - 200; n++)
		len += show_vport(to, len, chip_pfs[0], n);
	return len;
}

/* Scheduling elements that are no vport's. */
static u32 roots(struct chip_pf *pf)
{
	u32 count = pf->elements;
	int n;

	for (n = 0; n <= CHIP_MAX_VFS; n++)
		count -= !!pf->vport[n].element;
	return count;
}

static int show_steering(struct seq_file *to, void *unused)
{
	int p;

	for (p = 0; p < chip_npf; p++) {
		chip_show_steering(to, chip_pfs[p]);
		seq_printf(to, "%d roots %u\n", p, roots(chip_pfs[p]));
	}
	return 0;
}

static int __init report_init(void)
{
	if (chip_npf)
		proc_create_single("mlx5chip", 0444, NULL, show_steering);
	return 0;
}
late_initcall(report_init);

static const struct kernel_param_ops shares_ops = { .get = show_shares };
static const struct kernel_param_ops vports_ops = { .get = show_vports };
module_param_cb(shares, &shares_ops, NULL, 0444);
module_param_cb(vports, &vports_ops, NULL, 0444);
