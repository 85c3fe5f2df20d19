"""Is there a broker at an address, and is it the one that it should be? Checks that need no MQTT."""

from __future__ import annotations

import socket
import ssl
from contextlib import closing

from edge_sdk.tools.credentials.certificates import read_certificate
from edge_sdk.tools.diagnostics.findings import Finding
from edge_sdk.wire.addresses import Broker, Tls

PATIENCE = 5.0  # seconds for a connection or an answer
SOON = 14  # days before its end at which a certificate is to be renewed
CONNECT = bytes.fromhex("100c00044d5154540402000a0000")  # MQTT 3.1.1, clean session, no client id
UNKNOWN_AUTHORITY = {18, 19, 20, 21}  # codes of X509_verify_cert
ENDED, NOT_YET, WRONG_HOST, WRONG_ADDRESS, WRONG_PURPOSE = 10, 9, 62, 64, 26


def check_address(broker: Broker) -> Finding:
    """Does the host's name lead anywhere?"""
    try:
        found = socket.getaddrinfo(broker.host, broker.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        return Finding(
            "address", False, f"{broker.host}: {error}", "correct the name, or the name service of this machine"
        )
    addresses = sorted({str(one[4][0]) for one in found})
    return Finding("address", True, f"{broker.host} is {', '.join(addresses)}")


def check_port(broker: Broker) -> Finding:
    """Does anybody listen there?"""
    try:
        socket.create_connection((broker.host, broker.port), PATIENCE).close()
    except OSError as error:
        what = f"is the broker running, is {broker.port} its port, and does a firewall let it through?"
        return Finding("port", False, f"{broker.host}:{broker.port}: {error}", what)
    return Finding("port", True, f"{broker.host}:{broker.port} takes connections")


def check_tls(broker: Broker, tls: Tls) -> Finding:
    """Is the line encrypted as the address says, and is the broker's certificate good for this host?"""
    if not broker.tls:
        return check_plain(broker)
    context = Tls(tls.ca).context()
    try:
        line = socket.create_connection((broker.host, broker.port), PATIENCE)
        with closing(line), context.wrap_socket(line, server_hostname=broker.host) as secured:
            return describe_line(broker, secured)
    except ssl.SSLCertVerificationError as error:
        return explain_certificate(broker, error)
    except (ssl.SSLError, OSError) as error:
        if speaks_plain_text(broker):
            what = "name it mqtt:// on this machine, or let the broker listen with certificates (auscult provision)"
            return Finding("tls", False, f"{broker}: plain text is spoken there, without TLS", what)
        return Finding("tls", False, f"{broker}: {error}", "is it a broker with TLS that listens there?")


def describe_line(broker: Broker, secured: ssl.SSLSocket) -> Finding:
    """A line with TLS that is as it should be; its certificate may be near its end."""
    certificate = read_certificate(secured.getpeercert(True) or b"")
    left = certificate.days_left()
    detail = f"{secured.version()}, {broker.host} is whom its certificate names, good for {left:.0f} days"
    if left < SOON:
        return Finding("tls", False, detail, "auscult provision DIRECTORY --renew broker, then restart the broker")
    return Finding("tls", True, detail)


def explain_certificate(broker: Broker, error: ssl.SSLCertVerificationError) -> Finding:
    """A certificate of the broker that this node does not believe."""
    code, remedy = error.verify_code, "give the broker what `auscult provision` has made for it"
    if code in UNKNOWN_AUTHORITY:
        remedy = "let `ca` under [wire] be the ca.crt of the broker's own site"
        return Finding(
            "tls", False, f"{broker}: its certificate is of an authority that this node does not know", remedy
        )
    if code in (WRONG_HOST, WRONG_ADDRESS):
        remedy = f"name the broker as its certificate does, or auscult provision DIRECTORY --host {broker.host}"
    if code in (ENDED, NOT_YET):
        remedy = "set this machine's clock if it is wrong, else: auscult provision DIRECTORY --renew broker"
    if code == WRONG_PURPOSE:
        remedy = "it is a node's certificate: give the broker its own, and ask who listens there"
    return Finding("tls", False, f"{broker}: {error.verify_message.rstrip('.')} ({broker.host})", remedy)


def check_plain(broker: Broker) -> Finding:
    """A line without TLS, as its address says."""
    if not broker.path and not speaks_plain_text(broker) and speaks_tls(broker):
        url = f"mqtts://{broker.host}:{broker.port}"
        return Finding("tls", False, f"{broker}: TLS is spoken there", f"name it {url}, with certificates under [wire]")
    return Finding("tls", True, "plain text, as the address says: everybody on the way can read it")


def speaks_plain_text(broker: Broker) -> bool:
    """Does a broker answer there without TLS?"""
    try:
        with socket.create_connection((broker.host, broker.port), PATIENCE) as line:
            line.sendall(CONNECT)
            return line.recv(1) == b"\x20"  # an acknowledgement of the connection, whatever it says
    except OSError:
        return False


def speaks_tls(broker: Broker) -> bool:
    """Does anybody answer there with TLS? With which certificate does not matter."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with closing(socket.create_connection((broker.host, broker.port), PATIENCE)) as line:
            context.wrap_socket(line, server_hostname=broker.host).close()
            return True
    except OSError:
        return False
