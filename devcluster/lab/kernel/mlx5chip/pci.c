// SPDX-License-Identifier: GPL-2.0
/* The PCI side: a host bridge whose functions' BAR0 is answered by chip_read() and chip_write(). */
#include <linux/irq.h>
#include <linux/irqdomain.h>
#include <linux/kthread.h>
#include <linux/logic_iomem.h>
#include <linux/memblock.h>
#include <linux/module.h>
#include <linux/msi.h>
#include <linux/unaligned.h>
#include "chip.h"

#define PCIE		0x40
#define BUSES		2
#define VF_OFFSET	8	/* of function 0: its first VF is 01.0 */
#define IRQS		512

int chip_npf;
int chip_trace;
unsigned int chip_infiniband;
struct chip_pf *chip_pfs[CHIP_MAX_PFS];
static int totalvfs = 16, busnr = 0x3b;
/* ConnectX-6 Dx and its VFs; with InfiniBand ConnectX-6. mlx5_core_pci_table of main.c has them. */
static ushort pf_device = 0x101d, vf_device = 0x101e;
module_param_named(npf, chip_npf, int, 0444);
module_param_named(trace, chip_trace, int, 0644);
module_param_named(ib, chip_infiniband, uint, 0444);
module_param(totalvfs, int, 0444);
module_param(busnr, int, 0444);
module_param(pf_device, ushort, 0444);
module_param(vf_device, ushort, 0444);

static bool in_memory;
static DECLARE_BITMAP(irqs, IRQS);
static struct resource bus_range = { .name = "mlx5chip buses", .flags = IORESOURCE_BUS };
static struct resource window = {
	.name = "mlx5chip BARs",
	.start = 0x4000000000ULL,
	.end = 0x407fffffffULL,
	.flags = IORESOURCE_MEM | IORESOURCE_MEM_64 | IORESOURCE_PREFETCH,
};

/* Configuration space: PCI Express Base Specification, as drivers/pci reads it. */

static void write_sriov(struct chip_fn *fn, u8 *cap)
{
	put_unaligned_le32(PCI_EXT_CAP_ID_SRIOV | 1 << 16, cap);
	put_unaligned_le16(totalvfs, cap + PCI_SRIOV_INITIAL_VF);
	put_unaligned_le16(totalvfs, cap + PCI_SRIOV_TOTAL_VF);
	put_unaligned_le16(fn->pf->index, cap + PCI_SRIOV_FUNC_LINK);
	put_unaligned_le16(VF_OFFSET + fn->pf->index * (totalvfs - 1), cap + PCI_SRIOV_VF_OFFSET);
	put_unaligned_le16(1, cap + PCI_SRIOV_VF_STRIDE);
	put_unaligned_le16(chip_is_ib(fn->pf) ? 0x101c : vf_device, cap + PCI_SRIOV_VF_DID);
	put_unaligned_le32(1, cap + PCI_SRIOV_SUP_PGSIZE);
	put_unaligned_le32(1, cap + PCI_SRIOV_SYS_PGSIZE);
	put_unaligned_le64(PCI_BASE_ADDRESS_MEM_TYPE_64 | PCI_BASE_ADDRESS_MEM_PREFETCH, cap + PCI_SRIOV_BAR);
}

static void write_header(struct chip_fn *fn)
{
	bool vf = !chip_is_pf(fn), ib = chip_is_ib(fn->pf);
	u8 *c = fn->cfg;

	/* A VF's identifiers read as ones: pci_iov_add_virtfn has them of its PF. */
	put_unaligned_le16(vf ? 0xffff : PCI_VENDOR_ID_MELLANOX, c + PCI_VENDOR_ID);
	put_unaligned_le16(vf ? 0xffff : ib ? 0x101b : pf_device, c + PCI_DEVICE_ID);
	put_unaligned_le16(PCI_STATUS_CAP_LIST, c + PCI_STATUS);
	put_unaligned_le32((ib ? 0x0207 : PCI_CLASS_NETWORK_ETHERNET) << 16, c + PCI_CLASS_REVISION);
	put_unaligned_le16(PCI_VENDOR_ID_MELLANOX, c + PCI_SUBSYSTEM_VENDOR_ID);
	put_unaligned_le16(1, c + PCI_SUBSYSTEM_ID);
	c[PCI_CAPABILITY_LIST] = PCIE;
	c[PCIE] = PCI_CAP_ID_EXP;
	c[PCIE + PCI_CAP_LIST_NEXT] = CHIP_MSIX;
	put_unaligned_le16(2 | PCI_EXP_TYPE_RC_END << 4, c + PCIE + PCI_EXP_FLAGS);
	put_unaligned_le32(PCI_EXP_DEVCAP_FLR | PCI_EXP_DEVCAP_RBER, c + PCIE + PCI_EXP_DEVCAP);
	c[CHIP_MSIX] = PCI_CAP_ID_MSIX;
	put_unaligned_le16(CHIP_VECTORS - 1, c + CHIP_MSIX + PCI_MSIX_FLAGS);
	put_unaligned_le32(CHIP_MSIX_TABLE, c + CHIP_MSIX + PCI_MSIX_TABLE);
	put_unaligned_le32(CHIP_MSIX_PBA, c + CHIP_MSIX + PCI_MSIX_PBA);
	if (vf)
		return;
	c[PCI_HEADER_TYPE] = chip_npf > 1 ? PCI_HEADER_TYPE_MFD : 0;
	put_unaligned_le64(PCI_BASE_ADDRESS_MEM_TYPE_64 | PCI_BASE_ADDRESS_MEM_PREFETCH, c + PCI_BASE_ADDRESS_0);
	write_sriov(fn, c + CHIP_SRIOV);
}

int chip_numvfs(struct chip_pf *pf)
{
	return min_t(int, get_unaligned_le16(pf->fn.cfg + CHIP_SRIOV + PCI_SRIOV_NUM_VF), totalvfs);
}

static struct chip_fn *function_at(struct pci_bus *bus, unsigned int devfn)
{
	int at = (bus->number - busnr) * 256 + devfn, p, n;

	if (bus->number < busnr || bus->number >= busnr + BUSES)
		return NULL;
	if (at < chip_npf)
		return &chip_pfs[at]->fn;
	for (p = 0; p < chip_npf; p++) {
		u8 *cap = chip_pfs[p]->fn.cfg + CHIP_SRIOV;

		n = at - p - get_unaligned_le16(cap + PCI_SRIOV_VF_OFFSET);
		if ((cap[PCI_SRIOV_CTRL] & PCI_SRIOV_CTRL_VFE) && n >= 0 && n < chip_numvfs(chip_pfs[p]))
			return chip_pfs[p]->vf[n];
	}
	return NULL;
}

static int read_config(struct pci_bus *bus, unsigned int devfn, int where, int size, u32 *value)
{
	struct chip_fn *fn = function_at(bus, devfn);

	*value = ~0u;
	if (!fn || where + size > CHIP_CFG_SIZE)
		return PCIBIOS_DEVICE_NOT_FOUND;
	*value = 0;
	memcpy(value, fn->cfg + where, size);
	return PCIBIOS_SUCCESSFUL;
}

static void write_bar(u8 *c, int where, int bar, u32 value)
{
	u64 mask = ~(CHIP_BAR_SIZE - 1);

	if (where == bar)
		put_unaligned_le32((value & (u32)mask) | PCI_BASE_ADDRESS_MEM_TYPE_64 | PCI_BASE_ADDRESS_MEM_PREFETCH, c + bar);
	else
		put_unaligned_le32(value & (u32)(mask >> 32), c + bar + 4);
}

static int write_config(struct pci_bus *bus, unsigned int devfn, int where, int size, u32 value)
{
	struct chip_fn *fn = function_at(bus, devfn);
	int sriov = where - CHIP_SRIOV;
	bool pf;

	if (!fn)
		return PCIBIOS_DEVICE_NOT_FOUND;
	pf = chip_is_pf(fn);
	if (pf && size == 4 && (where & ~7) == PCI_BASE_ADDRESS_0)
		write_bar(fn->cfg, where, PCI_BASE_ADDRESS_0, value);
	else if (pf && size == 4 && (sriov == PCI_SRIOV_BAR || sriov == PCI_SRIOV_BAR + 4))
		write_bar(fn->cfg, where, CHIP_SRIOV + PCI_SRIOV_BAR, value);
	else if (where == PCI_COMMAND || where == CHIP_MSIX + PCI_MSIX_FLAGS)
		memcpy(fn->cfg + where, &value, min(size, 2));
	else if (where == PCIE + PCI_EXP_DEVCTL)
		put_unaligned_le16(value & ~PCI_EXP_DEVCTL_BCR_FLR, fn->cfg + where);
	else if (pf && (sriov == PCI_SRIOV_CTRL || sriov == PCI_SRIOV_NUM_VF))
		memcpy(fn->cfg + where, &value, min(size, 2));
	/* pcie_flr, which vfio and sysfs reset use */
	if (where == PCIE + PCI_EXP_DEVCTL && (value & PCI_EXP_DEVCTL_BCR_FLR))
		chip_fn_reset(fn);
	return PCIBIOS_SUCCESSFUL;
}

static struct pci_ops config_ops = { .read = read_config, .write = write_config };

/* BAR0: which function an address belongs to */

static u64 bar_address(const u8 *c, int at)
{
	return get_unaligned_le64(c + at) & ~0xfULL;
}

static struct chip_fn *bar_owner(u64 at, u64 *base)
{
	int p, n;

	for (p = 0; p < chip_npf; p++) {
		u8 *c = chip_pfs[p]->fn.cfg;

		*base = bar_address(c, PCI_BASE_ADDRESS_0);
		if (*base && at >= *base && at < *base + CHIP_BAR_SIZE)
			return &chip_pfs[p]->fn;
		*base = bar_address(c, CHIP_SRIOV + PCI_SRIOV_BAR);
		if (!*base || at < *base || at >= *base + CHIP_BAR_SIZE * totalvfs)
			continue;
		n = (at - *base) / CHIP_BAR_SIZE;
		*base += n * CHIP_BAR_SIZE;
		return chip_pfs[p]->vf[n];
	}
	return NULL;
}

static const struct logic_iomem_ops bar_ops = { .read = chip_read, .write = chip_write };

static long map_bar(unsigned long offset, size_t size, const struct logic_iomem_ops **bar, void **priv)
{
	u64 at = window.start + offset, base;
	struct chip_fn *fn = bar_owner(at, &base);

	if (!fn)
		return -ENOENT;
	fn->bar = in_memory ? __va(base) : NULL;
	*bar = &bar_ops;
	*priv = fn;
	return at - base;
}

static const struct logic_iomem_region_ops window_ops = { .map = map_bar };

/*
 * Processes map doorbell pages. User-Mode Linux can only give them its own memory: chip_bars=SIZE sets some aside for
 * the BARs. The kernel's own accesses trap to bar_ops; chip_poll() reads what processes write.
 */
static int __init set_bars_aside(char *size)
{
	u64 len = memparse(size, NULL), at = memblock_phys_alloc(len, CHIP_BAR_SIZE);

	if (!at)
		return -ENOMEM;
	in_memory = true;
	window.start = at;
	window.end = at + len - 1;
	return 0;
}
early_param("chip_bars", set_bars_aside);

/* MSI-X: the message is the number of the interrupt */

static void compose_message(struct irq_data *data, struct msi_msg *msg)
{
	msg->address_hi = 0;
	msg->address_lo = 0xb0000;
	msg->data = data->irq;
}

static void acknowledge(struct irq_data *data)
{
}

static struct irq_chip bottom = {
	.name = "mlx5chip",
	.irq_ack = acknowledge,
	.irq_compose_msi_msg = compose_message,
};

static int alloc_irq(struct irq_domain *domain, unsigned int virq, unsigned int n, void *args)
{
	unsigned long bit = find_first_zero_bit(irqs, IRQS);

	if (bit >= IRQS)
		return -ENOSPC;
	set_bit(bit, irqs);
	irq_domain_set_info(domain, virq, bit, &bottom, domain->host_data, handle_edge_irq, NULL, NULL);
	return 0;
}

static void free_irq_bit(struct irq_domain *domain, unsigned int virq, unsigned int n)
{
	clear_bit(irq_domain_get_irq_data(domain, virq)->hwirq, irqs);
}

static const struct irq_domain_ops inner_ops = { .alloc = alloc_irq, .free = free_irq_bit };
static bool init_msix(struct device *dev, struct irq_domain *domain, struct irq_domain *parent,
		      struct msi_domain_info *info)
{
	info->flags &= parent->msi_parent_ops->supported_flags;
	info->flags |= MSI_FLAG_USE_DEF_DOM_OPS | MSI_FLAG_USE_DEF_CHIP_OPS | MSI_FLAG_NO_AFFINITY;
	info->chip->irq_ack = irq_chip_ack_parent;
	return true;
}

static const struct msi_parent_ops parent_ops = {
	.supported_flags = MSI_GENERIC_FLAGS_MASK | MSI_FLAG_PCI_MSIX,
	.init_dev_msi_info = init_msix,
};

static struct irq_domain *make_msi_domain(void)
{
	struct fwnode_handle *fwnode = irq_domain_alloc_named_fwnode("mlx5chip");
	struct irq_domain_info info = { .fwnode = fwnode, .size = IRQS, .hwirq_max = IRQS, .ops = &inner_ops };
	struct irq_domain *domain = irq_domain_instantiate(&info);

	if (IS_ERR(domain))
		return NULL;
	domain->flags |= IRQ_DOMAIN_FLAG_MSI_PARENT;
	domain->msi_parent_ops = &parent_ops;
	return domain;
}

void chip_raise(struct chip_fn *fn, u32 vector)
{
	u16 flags = get_unaligned_le16(fn->cfg + CHIP_MSIX + PCI_MSIX_FLAGS);
	u32 *entry = fn->msix + vector * 4;

	if (vector >= CHIP_VECTORS || !(flags & PCI_MSIX_FLAGS_ENABLE) || (entry[3] & PCI_MSIX_ENTRY_CTRL_MASKBIT))
		return;
	generic_handle_irq_safe(entry[2]);
}

/* The firmware has a VF's vport before the bus has the VF. */
static int make_pf(int index)
{
	struct chip_pf *pf = kvzalloc(sizeof(*pf), GFP_KERNEL);
	int n;

	if (!pf)
		return -ENOMEM;
	chip_pfs[index] = pf;
	pf->index = index;
	pf->frame_max = CHIP_FRAME;
	spin_lock_init(&pf->steering);
	spin_lock_init(&pf->qps_lock);
	xa_init(&pf->tables);
	xa_init(&pf->groups);
	xa_init(&pf->roots);
	xa_init(&pf->qps);
	INIT_DELAYED_WORK(&pf->subnet_manager, chip_subnet_manager);
	chip_vports_init(pf);
	chip_fn_init(&pf->fn, pf, -1);
	write_header(&pf->fn);
	for (n = 0; n < totalvfs; n++) {
		pf->vf[n] = kzalloc(sizeof(*pf->vf[n]), GFP_KERNEL);
		if (!pf->vf[n])
			return -ENOMEM;
		chip_fn_init(pf->vf[n], pf, n);
		write_header(pf->vf[n]);
	}
	kthread_run(chip_poll, pf, "mlx5chip/%d", index);
	return chip_wire_init(pf);
}

static int make_bus(void)
{
	struct pci_host_bridge *bridge = pci_alloc_host_bridge(0);
	struct irq_domain *msi = make_msi_domain();
	int err;

	if (!bridge || !msi)
		return -ENOMEM;
	bus_range.start = busnr;
	bus_range.end = busnr + BUSES - 1;
	dev_set_msi_domain(&bridge->dev, msi);
	pci_add_resource(&bridge->windows, &window);
	pci_add_resource(&bridge->windows, &bus_range);
	bridge->ops = &config_ops;
	bridge->busnr = busnr;
	pci_lock_rescan_remove();
	err = pci_scan_root_bus_bridge(bridge);
	if (!err) {
		dev_set_msi_domain(&bridge->bus->dev, msi);
		pci_bus_size_bridges(bridge->bus);
		pci_bus_assign_resources(bridge->bus);
		pci_bus_add_devices(bridge->bus);
	}
	pci_unlock_rescan_remove();
	return err;
}

static int __init chip_init(void)
{
	int p, err;

	if (!chip_npf)
		return 0;
	if (chip_npf < 0 || chip_npf > CHIP_MAX_PFS || totalvfs < 0 || totalvfs > CHIP_MAX_VFS)
		return -EINVAL;
	for (p = 0; p < chip_npf; p++) {
		err = make_pf(p);
		if (err)
			return err;
	}
	return logic_iomem_add_region(&window, &window_ops) ?: make_bus();
}
/* When all drivers are there. */
late_initcall_sync(chip_init);
MODULE_DESCRIPTION("A modelled ConnectX");
MODULE_LICENSE("GPL");
