"""Several processes of one job: what the environment says (what they do together: test_two_hosts)."""

import pytest

from trainer.processes import COORDINATOR, INDEX, PROCESSES, Gang, gang_of


def test_the_environment_of_a_launcher_is_read() -> None:
    assert gang_of({}) is None
    assert gang_of({PROCESSES: "1"}) is None
    assert gang_of({PROCESSES: "gke-tpu"}) is None
    assert gang_of({PROCESSES: "2", INDEX: "1", COORDINATOR: "first:8476"}) == Gang(2, 1, "first:8476")


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({PROCESSES: "2", COORDINATOR: "a:1"}, "MARIN_PROCESSES is 2, and MARIN_PROCESS_INDEX is not set"),
        ({PROCESSES: "2", INDEX: "2", COORDINATOR: "a:1"}, "MARIN_PROCESS_INDEX is 2; .* from 0 to 1"),
        ({PROCESSES: "2", INDEX: "", COORDINATOR: "a:1"}, "both must be whole numbers"),
        ({PROCESSES: "2", INDEX: "0", COORDINATOR: "a"}, "MARIN_COORDINATOR is 'a'; it must be host:port"),
    ],
)
def test_an_odd_environment_names_the_variable(environment: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        gang_of(environment)
