"""docs/reference.md has every annotation, field, resource, condition, event, file, command and flag.

The lists name what programs and users rely on: a name that leaves the page has left the contract. Options are also
compared with the programs themselves, so that a new one is added to the page.
"""

import argparse
import dataclasses
import re
from typing import Any

import pytest

from advertiser.__main__ import Config as AdvertiserConfig
from cli.node.fleet.commands import Options as FleetOptions
from cli.node.hardware.run import Options as HardwareOptions
from cli.node.options import Options as NodeOptions
from cli.plugin.command_line.flags import make_parsers
from cni.__main__ import Options as CniOptions
from cri_shim.__main__ import Config as ShimConfig
from mooring import names
from scheduler.__main__ import Config as SchedulerConfig
from tests.docs.pages import ROOT

TEXT = (ROOT / "docs/reference.md").read_text(encoding="utf-8")
SUBJECTS = dict(re.findall(r"^##+ (.+)\n((?:(?!##+ ).*\n?)*)", TEXT, re.MULTILINE))

ANNOTATIONS = """
mooring.dev/interfaces rdma_interfaces_required mooring.dev/placement mooring.dev/group mooring.dev/runs
mooring.dev/spares mooring.dev/inventory
mooring.dev/assignment mooring.dev/assignment-signature mooring.dev/rates mooring.dev/rates-signature
mooring.dev/rates-in-force mooring.dev/request.<kind> mooring.dev/inventory.<kind> mooring.dev/request.gpu
mooring.dev/inventory.gpu mooring.dev/drain mooring.dev/drain-reasons mooring.dev/why mooring.dev/turns
k8s.v1.cni.cncf.io/network-status
"""
RESOURCES = """
rdma-sriov/vf rdma-sriov/mbps rdma-sriov/dev-infiniband-mount tencent.com/rdma mooring.dev/gpu
"""
CONDITIONS_AND_EVENTS = """
mooring.dev/ShimBypassed ShimFailed mooring.dev/VfsImpaired mooring.dev/InstallFailed mooring.dev/AdmissionPoliciesBound
DisruptionTarget VfDevicesMissing VfPortInactive VfSettingsReset
"""
# By the heading under which the fields are explained.
FIELDS = {
    "Inventory": """v boot pfs name pci rdma link mbps offer_mbps up numa pcie network can allow vfs vf0 stride out why
        min_tx_rate max_tx_rate vlan mac guid trust spoofchk link_state access namespaces max_share entry port
        vf_netdevs tested shown differs rates handlers programs""",
    "Request": """min_tx_rate max_tx_rate network pf link name mac vlan qos trust spoofchk link_state guid containers
        netdev pfs pack spread distinct vfs root""",
    "Assignment": "v uid node vfs pf vf pci link network min_tx_rate max_tx_rate name containers ext units ed25519 key",
    "Rates of a running pod": "v uid node generation rates reserved pods min_tx_rate max_tx_rate",
    "Group": """name name_from min within prefer rails same index disruption group pod
        spec.schedulingGroup scheduling.x-k8s.io/pod-group disruptionMode parentCompositePodGroupName""",
    "GPUs and other kinds": """gpus pci uuid vendor model memory_mb numa pcie link out why count together switch vfs
        units uuids containers beside resource.kubernetes.io/pcieRoot""",
    "Other annotations": "group member fitting wanted nodes proven turns node target beats failure",
    "Files of a node": """
        /var/lib/mooring/pods/<uid>.json /var/lib/mooring/rates/<uid>.json /var/lib/mooring/vfs/<pci>.json
        /var/lib/mooring/offer.json /var/lib/mooring/offer/offer.yaml next.yaml /var/lib/mooring/hardware/<pci>.json
        /var/lib/mooring/sandbox-marks /var/lib/mooring/install/bypass.json pods/<uid>.unprivileged in-doubt/<pci>
        set-aside/<pci> /run/mooring/locks/<pci> /run/mooring/locks/pods-<nn> /run/mooring/sandboxes/.shim
        /run/mooring/init/ready /run/mooring/init/result.json /run/mooring/init/bound/<pci> init/lock
        /run/mooring/init/without-guid/<pci> /run/mooring/kubelet-call.json /run/mooring/version/<program>
        /run/mooring/advertiser/version /run/mooring/advertiser/ports.json /run/mooring/advertiser/rates-listed
        advertiser/rates/<uid>.json running /etc/mooring/config.yaml /etc/mooring/offer.yaml /etc/mooring/cni.json
        /etc/mooring/assignment-keys.pem""",
    "Ledger entry": """phase taking held returning original uid container ifname netns boot addresses rdma_only share
        reset_at deleted SO_NETNS_COOKIE""",
    "Node's part of the offer": """default_share_mbps repair_node_guid rebind_after_privileged vlan network set_aside
        keep_percent allow namespaces""",
    "Sandbox marks": "/run/mooring/sandboxes/<uid>.<random",
    "Reports": """extract/vfs extract/pods extract/hardware extract/node-check.json extract/node-install.json
        extract/shim-bypass.json extract/vf-faults.json extract/without-devices.json extract/rates/<uid>.json
        extract/rates-server shown differs not_asked driver kernel shim runtime bypass unknown v since why""",
    "CNI configuration": """cniVersion type capabilities io.kubernetes.cri.pod-annotations node state run sysfs server
        ipam networks policyRouting holdTimeoutSeconds awaitInit network deviceID pciBusID MOORING_IPAM
        7 11 50 100 101 102 103""",
    "Variables of containers": """MOORING_DEVICES name pci network rdma uverbs ips MOORING_RDMA_DEVICES NCCL_IB_HCA
        UCX_NET_DEVICES NVSHMEM_HCA_LIST MOONCAKE_DEVICE MORI_RDMA_DEVICES NVIDIA_VISIBLE_DEVICES""",
}
COMMANDS = {
    "mooring-scheduler": "--kubeconfig",
    "mooring-advertiser": "serve init show once capture hand-over",
    "mooring-cri-shim": "systemctl reload",
    "mooring-cni": "serve show /opt/cni/bin/mooring-cni /opt/mooring/bin/mooring-cni --reconcile-s",
    "mooring-node": "install upgrade remove undo check bypass on off hardware-test fleet",
    "kubectl mooring": """nodes pods gpus groups explain top status doctor lint version completion drain undrain
        support-bundle connectivity assess pod/NAME group/NAME job/NAME name jsonpath= bash zsh fish
        kubectl_complete-mooring -o -l -w""",
    "./run release": "--arch --without-images --out --commit --cache --download-url",
}
OPTIONS: dict[str, tuple[Any, ...]] = {
    "mooring-scheduler": (SchedulerConfig,),
    "mooring-advertiser": (AdvertiserConfig,),
    "mooring-cri-shim": (ShimConfig,),
    "mooring-cni": (CniOptions,),
    "mooring-node": (NodeOptions, HardwareOptions, FleetOptions),
}


def missing(listed: str, text: str) -> list[str]:
    """Return the words of a list that are not in the text's code, each as a word of its own."""
    code = "\n".join(re.findall(r"``.+?``|`[^`\n]+`|^ {4}.+$", text, re.MULTILINE))
    return [word for word in listed.split() if not re.search(rf"(?<![\w/-]){re.escape(word)}(?![\w-])", code)]


@pytest.mark.parametrize("listed", [ANNOTATIONS, RESOURCES, CONDITIONS_AND_EVENTS], ids=["annotations", "res", "cond"])
def test_every_name_that_the_cluster_sees_is_on_the_page(listed: str) -> None:
    """Annotations, resources of nodes, conditions and events."""
    assert missing(listed, TEXT) == []


def test_every_annotation_of_the_source_is_in_the_list() -> None:
    """An annotation that is added to the contract is added to the page."""
    keys = {value for name, value in vars(names).items() if name.isupper() and isinstance(value, str)}
    written = {key for key in keys if key.startswith("mooring.dev/")} | {names.RIT_REQUEST}
    listed = {word.removesuffix(".<kind>") for word in ANNOTATIONS.split()}
    assert {key.rstrip(".") for key in written} - listed == set()
    assert set(names.EXTENDED_RESOURCES) - set(RESOURCES.split()) == set()


@pytest.mark.parametrize("subject", FIELDS)
def test_every_field_is_explained_under_its_subject(subject: str) -> None:
    """A reader finds a field below the heading of its document."""
    assert missing(FIELDS[subject], SUBJECTS[subject]) == []


@pytest.mark.parametrize("program", COMMANDS)
def test_every_command_is_named_under_its_program(program: str) -> None:
    """Commands and their arguments."""
    assert missing(COMMANDS[program], SUBJECTS[program]) == []


@pytest.mark.parametrize("program", OPTIONS)
def test_every_option_of_a_program_is_named_under_it(program: str) -> None:
    """The programs' own options, so that the page grows with them."""
    fields = [field.name for kind in OPTIONS[program] for field in dataclasses.fields(kind)]
    assert missing(" ".join(f"--{name.replace('_', '-')}" for name in fields), SUBJECTS[program]) == []


def test_every_command_and_flag_of_kubectl_mooring_is_named_under_it() -> None:
    """All commands and their flags; those of argparse itself are left out."""
    parsers = make_parsers()
    every: list[argparse.ArgumentParser] = [parsers.root, *parsers.commands.values()]
    flags = {flag for parser in every for flag in parser._option_string_actions if flag.startswith("--")}
    assert missing(" ".join(parsers.commands), SUBJECTS["kubectl mooring"]) == []
    assert missing(" ".join(sorted(flags - {"--help"})), SUBJECTS["kubectl mooring"]) == []


def test_the_page_stays_short() -> None:
    """A reference that is too long to look into is not read: at most 5,000 words, paragraphs of at most 90."""
    assert len(TEXT.split()) <= 5000
    paragraphs = [part for part in re.split(r"\n\n|\n(?=- )", TEXT) if not part.startswith((" ", "|"))]
    assert [part for part in paragraphs if len(part.split()) > 90] == []


def test_the_explanation_of_the_architecture_takes_ten_minutes() -> None:
    """At most 2,500 words: at 250 a minute."""
    assert len((ROOT / "docs/architecture.md").read_text(encoding="utf-8").split()) <= 2500
