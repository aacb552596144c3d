"""A chat template is a stranger's code: it ends within its bounds, and the next one is rendered as if nothing had been."""

import os
import signal

import pytest

from serving.server.template_process import TemplateFaultError, TemplateProcess

GIVEN = {"messages": [{"role": "user", "content": "hi"}], "bos_token": "", "eos_token": "", "add_generation_prompt": True}
PLAIN = "{% for m in messages %}{{ m.role }}: {{ m.content }}{% endfor %}"
LOOPS = "{% for a in range(99999) %}{% for b in range(99999) %}{% for c in range(99999) %}{% endfor %}{% endfor %}{% endfor %}"


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        (LOOPS, "more than 0.5 s"),
        ("{{ 'x' * 10 ** 10 }}", "MemoryError"),
        ("{% set ns = namespace(x='x') %}{% for i in range(40) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}", "MemoryError"),
        ("{{ 10 ** (10 ** 9) }}", "more than 0.5 s"),
        ("{{ '%1000000000d' % 1 }}", "MemoryError"),
        ("{{ 'x'.ljust(900000000000) }}", "MemoryError"),
        ("{% for i in range(99999) %}{{ 'x' * 1000 }}{% endfor %}", "more than 8388608 characters"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "recursion"),
        ("{{ range(10 ** 9) | list }}", "Range too big"),
        ("{{ messages.__class__.__mro__ }}", "unsafe"),
        ("{{ raise_exception('no system role') }}", "no system role"),
        ("{% if %}", "Expected an expression"),
        ("{{ 1 + messages[0].content }}", "unsupported operand"),
        ("{{ messages[7].role }}", "no element 7"),
    ],
)
def test_a_template_that_overruns_a_bound_is_refused_by_name(source, reason):
    process = TemplateProcess(seconds=0.5 if "0.5 s" in reason else 60, memory_mib=256)
    with pytest.raises(TemplateFaultError) as fault:
        process.render(source, GIVEN)
    assert reason in str(fault.value)
    assert TemplateProcess(memory_mib=256).render(PLAIN, GIVEN) == "user: hi"
    process.close()


def test_one_process_renders_many_and_a_killed_one_is_replaced():
    process = TemplateProcess()
    assert process.render(PLAIN, GIVEN) == "user: hi"
    assert process.process is not None
    first = process.process.pid
    large = {**GIVEN, "messages": [{"role": "user", "content": "x" * 3_000_000}]}
    assert len(process.render(PLAIN, large)) == 3_000_006
    assert process.process.pid == first
    os.kill(first, signal.SIGKILL)
    process.process.wait()
    assert process.render(PLAIN, GIVEN) == "user: hi"
    assert process.process.pid != first
    process.close()
    assert process.process is None
