"""Find the CNI folders in the container runtime's own configuration. Pure.

Sources: containerd's docs/cri/config.md, for versions 2 and 3 of its configuration, and internal/cri/config/config.go,
where ``bin_dirs`` takes the place of ``bin_dir`` since 2.1; crio.conf(5), ``[crio.network]``, and cri-o's
pkg/config/config.go. OpenShift's are in 00-default (templates/master/01-master-container-runtime/_base/files/crio.yaml
in openshift/machine-config-operator), MicroShift's in packaging/crio.conf.d of openshift/microshift. k3s and RKE2 write
their containerd's configuration at each start (pkg/agent/templates in k3s-io/k3s).
"""

import posixpath
from collections.abc import Iterator, Mapping, Sequence
from typing import cast

from cli.node.plan.states import CniFolders

Document = Mapping[str, object]
_CRIO = ("/etc/crio/crio.conf", "/etc/crio/crio.conf.d")
_CONTAINERD = ("/etc/containerd/config.toml",)
_RANCHER = tuple(f"/var/lib/rancher/{name}/agent/etc/containerd/config.toml" for name in ("rke2", "k3s"))
# The CRI plugin's sections in versions 1, 2 and 3 of containerd's configuration, and CRI-O's.
_SECTIONS = (
    *(("plugins", name, "cni") for name in ("cri", "io.containerd.grpc.v1.cri", "io.containerd.cri.v1.runtime")),
    ("crio", "network"),
)


def config_paths(socket: str | None) -> Sequence[str]:
    """Return the files and folders of the runtime at a socket; None if the socket is unknown.

    For an unknown socket they are those of all runtimes, and the last that has a setting decides: a program with a
    kubelet of its own uses its own containerd, or CRI-O.
    """
    if socket is None:
        return (*_CONTAINERD, *_CRIO, *_RANCHER)
    if posixpath.basename(socket) == "crio.sock":
        return _CRIO
    return _RANCHER if "/k3s/" in socket else _CONTAINERD


def cni_folders(documents: Sequence[Document]) -> CniFolders:
    """Return the folders that a runtime's documents name; later ones take precedence."""
    found = CniFolders()
    sections = [section for document in documents for path in _SECTIONS if (section := _at(document, path))]
    confs = [*_texts(sections, "conf_dir", "network_dir")]
    plugins = [folder for section in sections if (folder := _bin(section))]
    networks = [*_texts(sections, "cni_default_network")]
    return CniFolders(
        _clean(confs[-1]) if confs else found.conf,
        _clean(plugins[-1]) if plugins else found.bin,
        networks[-1] if networks else "",
    )


def _bin(section: Document) -> str:
    """Return the folder for our executable: the first that is not below /usr, which can be read-only."""
    listed = [section.get(name) for name in ("bin_dirs", "plugin_dirs")]
    single = [[section.get(name)] for name in ("bin_dir", "plugin_dir")]
    folders = [one for each in (*listed, *single) if isinstance(each, list) for one in each]
    names = [folder for folder in folders if isinstance(folder, str) and folder.startswith("/")]
    return next((name for name in names if not name.startswith("/usr/")), names[0] if names else "")


def _texts(sections: Sequence[Document], *names: str) -> Iterator[str]:
    values = (section.get(name) for section in sections for name in names)
    yield from (value for value in values if isinstance(value, str) and value)


def _clean(path: str) -> str:
    return posixpath.normpath(path)


def _at(document: Document, path: Sequence[str]) -> Document:
    for step in path:
        value = document.get(step)
        document = cast(Document, value) if isinstance(value, Mapping) else {}
    return document
