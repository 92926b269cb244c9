"""Environment variables: how text becomes a value, and what happens to text that does not."""

from __future__ import annotations

import os
from datetime import timedelta

import pytest
import torch
import torchcomms
from torchcomms import CommOptions, _environment

from tests.harness.environment import environment
from tests.harness.programs import python

TRUE = ["1", "true", "yes", "y", "TRUE", "Yes", " y ", "\ttrue\n"]
FALSE = ["0", "false", "no", "n", "False", "NO", " n "]


@pytest.mark.parametrize("text", TRUE)
def test_these_words_are_true(text):
    with environment(TORCHCOMM_ABORT_ON_ERROR=text):
        assert CommOptions().abort_process_on_timeout_or_error is True


@pytest.mark.parametrize("text", FALSE)
def test_these_words_are_false(text):
    with environment(TORCHCOMM_ABORT_ON_ERROR=text):
        assert CommOptions().abort_process_on_timeout_or_error is False


@pytest.mark.parametrize("text", ["", "  "])
def test_empty_text_is_unset(text):
    with environment(TORCHCOMM_ABORT_ON_ERROR=text, TORCHCOMM_TIMEOUT_SECONDS=text):
        assert CommOptions().abort_process_on_timeout_or_error is True
        assert CommOptions().timeout == timedelta(seconds=600)


@pytest.mark.parametrize(
    ("text", "seconds"), [("30", 30), ("30.0", 30), (" 45 ", 45), ("0.25", 0.25), ("86400", 86400)]
)
def test_seconds_may_have_decimals_and_white_space(text, seconds):
    with environment(TORCHCOMM_TIMEOUT_SECONDS=text):
        assert CommOptions().timeout == timedelta(seconds=seconds)


BAD = {
    "TORCHCOMM_ABORT_ON_ERROR": ["on", "2", "tru", "yes no", "-1"],
    "TORCHCOMM_TIMEOUT_SECONDS": ["-1", "soon", "10s", "1 2", "nan", "inf", "1e400", "0x10"],
}


@pytest.mark.parametrize(("name", "text"), [(n, t) for n, texts in BAD.items() for t in texts])
def test_a_bad_value_is_a_runtime_error_that_names_variable_and_value(name, text):
    with environment(**{name: text}):
        for read in (
            CommOptions,
            lambda: torchcomms.new_comm("fake", torch.device("cpu"), "never"),
        ):
            with pytest.raises(RuntimeError) as caught:
                read()
            assert name in str(caught.value)
            assert text in str(caught.value)


def test_an_explicit_argument_needs_no_variable():
    with environment(TORCHCOMM_TIMEOUT_SECONDS="12"):
        comm = torchcomms.new_comm("fake", torch.device("cpu"), "explicit", timeout=5.0)
    assert comm.get_options().timeout == timedelta(seconds=5)


def test_values_are_read_at_each_use():
    seen = []
    for text in ("10", "20", None):
        with environment(TORCHCOMM_TIMEOUT_SECONDS=text):
            seen.append(CommOptions().timeout.total_seconds())
    assert seen == [10, 20, 600]


def test_variables_that_the_block_has_removed_itself_stay_removed():
    name = "TORCHCOMM_TIMEOUT_SECONDS"
    with environment(**{name: None}):
        with _environment.variables(**{name: "12"}):
            assert CommOptions().timeout == timedelta(seconds=12)
            del os.environ[name]
        assert name not in os.environ


ENABLED = """
    import torchcomms
    print(torchcomms.functional.is_torch_compile_supported_and_enabled("0"))
"""


@pytest.mark.parametrize("name", ["TORCHCOMM_EVENTS_PRINT", "TORCHCOMMS_PATCH_FOR_COMPILE"])
def test_a_bad_switch_of_the_import_is_a_warning_and_off(name):
    done = python(ENABLED, **{name: "maybe"}).expect_success()
    assert f"{name}='maybe' is not allowed: expected 1, true" in done.err
    assert done.out == "False\n"


@pytest.mark.parametrize("text", ["true", " YES "])
def test_a_switch_of_the_import_takes_the_words_of_all(text):
    done = python(ENABLED, TORCHCOMMS_PATCH_FOR_COMPILE=text).expect_success()
    assert done.out == "True\n"


def test_a_limit_below_a_millisecond_is_one():
    with environment(TORCHCOMM_TIMEOUT_SECONDS="0.0005"):
        assert CommOptions().timeout == timedelta(milliseconds=1)


def test_a_bad_log_level_is_an_error_of_new_comm():
    with environment(TORCHCOMM_LOG_LEVEL="loud"), pytest.raises(RuntimeError) as caught:
        torchcomms.new_comm("fake", torch.device("cpu"), "never")
    assert "TORCHCOMM_LOG_LEVEL='loud'" in str(caught.value)
    assert "warning" in str(caught.value)
