"""Checks the address that gloo binds to, and the address of the rendezvous (MASTER_ADDR)."""

from __future__ import annotations

import ipaddress
import os
import socket

from torchcomms.doctor.network import (
    ANYWHERE,
    Interface,
    interfaces,
    is_local,
    resolve,
    reverse_lookup_s,
    route,
)
from torchcomms.doctor.report import Section, facts

SLOW_S = 0.5
LOOKUP_TIMEOUT_S = 3.0


def look() -> Section:
    """Reports the address that peers connect to, and the one that this rank connects to first."""
    section = Section("rendezvous", "Rendezvous")
    _host_name(section)
    _name_server(section)
    master = _master(section)
    chosen = _chosen(section, interfaces())
    if chosen is not None:
        address, why = chosen
    elif _spans_hosts():
        address, why = route(master or ANYWHERE), "the route to rank 0's host uses it"
    else:
        address, why = "127.0.0.1", "all ranks share this host"
    section.rows += facts([("gloo's address", address), ("because", why)])
    if chosen is None and not _spans_hosts():
        elsewhere = route(master or ANYWHERE)
        section.rows += facts([("if ranks were on other hosts", elsewhere or "no route to them")])
    if address is None:
        return section  # a finding says so already
    if _spans_hosts() and ipaddress.ip_address(address).is_loopback:
        section.problem(
            "gloo's address",
            f"other hosts cannot reach {address}, and this job spans hosts ({why})",
            "set TORCHCOMM_GLOO_INTERFACE to the interface that connects them, and MASTER_ADDR to "
            "an address that other hosts can reach",
        )
    else:
        section.ok("gloo's address", f"{address}: {why}")
    return section


def _host_name(section: Section) -> None:
    name = socket.gethostname()
    address, error = resolve(name)
    section.rows += facts([("host name", f"{name} = {address}" if address else name)])
    if address is None:
        section.warn(
            "host name",
            f"{name} does not resolve ({error}); torch.distributed's own gloo needs it to",
            "add the name to /etc/hosts",
        )
    elif not is_local(address):
        section.warn(
            "host name",
            f"{name} resolves to {address}, which is not an address of this host; "
            "torch.distributed's own gloo needs one",
            "correct /etc/hosts",
        )


def _name_server(section: Section) -> None:
    """Times a reverse lookup: torch's stores block at every connection until it is answered."""
    took_s = reverse_lookup_s("127.0.0.1", LOOKUP_TIMEOUT_S)
    if took_s is not None and took_s < SLOW_S:
        return
    waited = (
        f"had no answer within {LOOKUP_TIMEOUT_S:g} s" if took_s is None else f"took {took_s:.1f} s"
    )
    section.warn(
        "name server",
        f"the reverse lookup of 127.0.0.1 {waited}; torch's stores make one at every connection, "
        "so each start-up waits",
        "correct /etc/resolv.conf, or set RES_OPTIONS='timeout:1 attempts:1' for the job",
    )


def _chosen(section: Section, found: list[Interface]) -> tuple[str | None, str] | None:
    """The address that the user has chosen for gloo, and the variable, in gloo's order of
    variables.

    Returns: None if no variable is set. The address is None, and a problem is noted, if gloo cannot
    bind to it.
    """
    usable = [each for each in found if each.up and each.addresses]
    if name := os.environ.get("TORCHCOMM_GLOO_HOSTNAME", "").strip():
        address, error = resolve(name)
        if address is not None and not is_local(address):
            error = f"it resolves to {address}, which is not an address of this host"
        if error:
            addresses = ", ".join(each.addresses[0] for each in usable)
            section.problem(
                "TORCHCOMM_GLOO_HOSTNAME",
                f"gloo cannot bind to {name}: {error}",
                f"set it to a name or an address of this host: {addresses}",
            )
        return (None if error else address), f"TORCHCOMM_GLOO_HOSTNAME={name}"
    for variable in ("TORCHCOMM_GLOO_INTERFACE", "GLOO_SOCKET_IFNAME"):
        if names := os.environ.get(variable, "").strip():
            bound = [_of_interface(section, variable, each, usable) for each in names.split(",")]
            return bound[0], f"{variable}={names}"
    return None


def _of_interface(
    section: Section, variable: str, name: str, usable: list[Interface]
) -> str | None:
    for each in usable:
        if each.name == name:
            return each.addresses[0]
    there = name in [known for _, known in socket.if_nameindex()]
    section.problem(
        variable,
        f"the interface {name} is down or has no address"
        if there
        else f"the interface {name} does not exist",
        f"set it to one of: {', '.join(each.name for each in usable)}",
    )
    return None


def _spans_hosts() -> bool:
    """Returns: whether the launcher's variables say that some ranks are on other hosts."""
    total, here = os.environ.get("WORLD_SIZE", ""), os.environ.get("LOCAL_WORLD_SIZE", "")
    return total.isdigit() and here.isdigit() and int(total) > int(here)


def _master(section: Section) -> str | None:
    """The address of MASTER_ADDR if it is set and has a route; notes what is wrong with it."""
    name = os.environ.get("MASTER_ADDR", "").strip()
    port = os.environ.get("MASTER_PORT", "").strip()
    if port and not (port.isdigit() and int(port) < 1 << 16):
        section.problem("MASTER_PORT", f"{port!r} is not a port", "set it to 1024..65535")
    if not name:
        section.rows += facts([("MASTER_ADDR", "not set: the launcher or the job gives it")])
        return None
    address, error = resolve(name)
    section.rows += facts([("MASTER_ADDR", f"{name} = {address}"), ("MASTER_PORT", port or None)])
    if address is None:
        section.problem(
            "MASTER_ADDR",
            f"{name} does not resolve: {error}",
            "set it to the host name or address of rank 0's host",
        )
        return None
    source = route(address)
    if source is None:
        section.problem(
            "MASTER_ADDR",
            f"this host has no route to {address}",
            "connect the hosts, or set MASTER_ADDR to an address in a network of this host",
        )
        return None
    section.ok("MASTER_ADDR", f"{name} is {address}, reached from {source}")
    if port.isdigit() and os.environ.get("RANK") == "0" and not _agent_serves():
        _port_is_free(section, address, int(port))
    return address


def _agent_serves() -> bool:
    return os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"


def _port_is_free(section: Section, address: str, port: int) -> None:
    if not is_local(address):
        return
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError as error:
            section.problem(
                "MASTER_PORT",
                f"rank 0 cannot listen on {address}:{port}: {error.strerror}",
                "choose another port, or end the program that holds it",
            )
