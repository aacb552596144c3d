"""Which control plane the cluster tests use."""

from pathlib import Path

import pytest
from control_plane import BINARIES, ControlPlane, RunningPlane, binaries, control_plane


def folder_of(path: Path, *names: str) -> Path:
    path.mkdir(parents=True)
    for name in names:
        (path / name).touch()
    return path


def test_what_is_at_hand_first_is_taken(tmp_path: Path) -> None:
    built = folder_of(tmp_path / "marin" / "kube-1.20.2", *BINARIES)
    assets = folder_of(tmp_path / "assets", *BINARIES)
    environment = {"XDG_CACHE_HOME": str(tmp_path)}
    assert binaries(environment) == built
    environment["KUBEBUILDER_ASSETS"] = str(assets)
    assert binaries(environment) == assets
    own = control_plane(environment)
    assert isinstance(own, ControlPlane) and own.binaries == assets
    own.stop()
    running = control_plane(environment | {"MARIN_KUBECONFIG": str(tmp_path / "kubeconfig")})
    assert isinstance(running, RunningPlane) and running.kubeconfig == tmp_path / "kubeconfig"


def test_envtests_assets_alone_are_passed_over(tmp_path: Path) -> None:
    """They have an API server and etcd, and nothing that schedules a pod or runs a job."""
    assets = folder_of(tmp_path / "assets", "etcd", "kube-apiserver", "kubectl")
    environment = {"XDG_CACHE_HOME": str(tmp_path), "KUBEBUILDER_ASSETS": str(assets)}
    with pytest.raises(FileNotFoundError, match=r"assets has no kube-controller-manager, kube-scheduler; .*build_kube\.sh"):
        binaries(environment)
    built = folder_of(tmp_path / "marin" / "kube-1.20.2", *BINARIES)
    assert binaries(environment) == built
