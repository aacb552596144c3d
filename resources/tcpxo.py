"""GPUDirect-TCPXO: the network between GKE's nodes of eight H100 (a3-megagpu-8g), in the words of its release notes.

Source: GoogleCloudPlatform/container-engine-accelerators, gpudirect-tcpxo/README.md and best-practice.md (public; read
2026-11-24). Not run by us. The node pool needs multi-networking with eight networks `vpc1` to `vpc8` and Google's installer
of the NCCL plugin; the daemon's version must fit the nodes' GPU driver, so the cluster's settings name it (`tcpxo_image`).
The daemon mounts folders of its node and adds capabilities, which the baseline profile of Pod Security refuses: the namespace
of such a cluster must be labelled `privileged`.
"""

import json
from collections.abc import Mapping
from typing import Any

DAEMON = "tcpxo-daemon"
LIBRARIES = "/usr/local/nvidia"
_LIB64 = f"{LIBRARIES}/lib64"
NICS = 8
TCPXO_ENVIRONMENT: Mapping[str, str] = {
    "LD_LIBRARY_PATH": _LIB64,
    "NCCL_FASTRAK_CTRL_DEV": "eth0",
    "NCCL_FASTRAK_IFNAME": ",".join(f"eth{i}" for i in range(1, NICS + 1)),
    "NCCL_SOCKET_IFNAME": "eth0",
    "NCCL_CROSS_NIC": "0",
    "NCCL_PROTO": "Simple,LL128",
    "NCCL_MIN_NCHANNELS": "4",
    "NCCL_TUNER_PLUGIN": "libnccl-tuner.so",
    "NCCL_TUNER_CONFIG_PATH": f"{_LIB64}/a3plus_tuner_config.textproto",
    "NCCL_SHIMNET_GUEST_CONFIG_CHECKER_CONFIG_FILE": f"{_LIB64}/a3plus_guest_config.textproto",
    "NCCL_DYNAMIC_CHUNK_SIZE": "524288",
    "NCCL_P2P_NET_CHUNKSIZE": "524288",
    "NCCL_P2P_PCI_CHUNKSIZE": "524288",
    "NCCL_P2P_NVL_CHUNKSIZE": "1048576",
    "NCCL_FASTRAK_NUM_FLOWS": "2",
    "NCCL_FASTRAK_USE_SNAP": "1",
    "NCCL_FASTRAK_PLUGIN_ACCEPT_TIMEOUT_MS": "600000",
    "NCCL_FASTRAK_ENABLE_CONTROL_CHANNEL": "0",
    "NCCL_FASTRAK_ENABLE_HOTPATH_LOGGING": "0",
    "NCCL_FASTRAK_USE_LLCM": "1",
    "NCCL_FASTRAK_LLCM_DEVICE_DIRECTORY": "/dev/aperture_devices",
    "NCCL_BUFFSIZE": "8388608",
    "NCCL_NET_GDR_LEVEL": "PIX",
    "NCCL_NVLS_ENABLE": "0",
}


def tcpxo_annotations() -> dict[str, str]:
    """Return the pod's annotations: its eight networks, and the daemon's devices."""
    networks = [{"interfaceName": "eth0", "network": "default"}]
    networks += [{"interfaceName": f"eth{i}", "network": f"vpc{i}"} for i in range(1, NICS + 1)]
    devices = [*(f"/dev/nvidia{i}" for i in range(NICS)), "/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/dmabuf_import_helper"]
    return {
        f"devices.gke.io/container.{DAEMON}": "".join(f"- path: {path}\n" for path in devices),
        "networking.gke.io/default-interface": "eth0",
        "networking.gke.io/interfaces": json.dumps(networks),
    }


def add_tcpxo(pod: dict[str, Any], container: dict[str, Any], image: str) -> None:
    """Add the daemon, as a sidecar that ends with the job (Kubernetes 1.29 and later), and its folders of the node.

    Raises: ValueError if the settings name no image.
    """
    if not image:
        raise ValueError(
            "cluster settings: tcpxo_image is empty; name the image of GPUDirect-TCPXO's daemon that fits the nodes' GPU "
            "driver, by digest (gpudirect-tcpxo/README.md of GoogleCloudPlatform/container-engine-accelerators lists them)"
        )
    folders = {
        "tcpxo-libraries": "/home/kubernetes/bin/nvidia",
        "tcpxo-sys": "/sys",
        "tcpxo-proc-sys": "/proc/sys",
        "tcpxo-aperture": "/dev/aperture_devices",
    }
    pod["volumes"] += [{"name": name, "hostPath": {"path": path}} for name, path in folders.items()]
    libraries = {"name": "tcpxo-libraries", "mountPath": LIBRARIES, "readOnly": True}
    container["volumeMounts"] += [libraries, {"name": "tcpxo-aperture", "mountPath": "/dev/aperture_devices"}]
    start = "set -e; chmod 755 /fts/entrypoint_rxdm_container.sh; exec /fts/entrypoint_rxdm_container.sh"
    pod["initContainers"] = [
        {
            "name": DAEMON,
            "image": image,
            "restartPolicy": "Always",
            "command": ["/bin/sh", "-c", f"{start} --num_hops=2 --num_nics={NICS} --uid= --alsologtostderr"],
            "env": [{"name": "LD_LIBRARY_PATH", "value": _LIB64}],
            "securityContext": {
                "runAsUser": 0,
                "runAsNonRoot": False,
                "capabilities": {"add": ["NET_ADMIN", "NET_BIND_SERVICE"]},
            },
            "volumeMounts": [
                libraries,
                {"name": "tcpxo-sys", "mountPath": "/hostsysfs"},
                {"name": "tcpxo-proc-sys", "mountPath": "/hostprocsysfs"},
            ],
        }
    ]
