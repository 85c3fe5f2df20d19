"""How many devices one mosquitto takes with the configuration of `auscult provision`: memory, handshakes, answers.

Each connection is as a device's: TLS with a certificate of its own, a session, one subscription that the access list
allows. They are opened one after the other and kept; then some of them, drawn at random, say that they are there and
wait for the broker's answer.

    python benchmarks/broker_limit.py [--connections 5000] [--step 1000]
"""

from __future__ import annotations

import argparse
import datetime
import random
import re
import resource
import socket
import ssl
import statistics
import subprocess
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from edge_sdk.replay.nodes.broker import find_free_port, find_mosquitto
from edge_sdk.tools.credentials.broker_files import hand_over, write_configuration
from edge_sdk.tools.credentials.provision import Provisioner
from edge_sdk.tools.credentials.site import Site
from edge_sdk.wire.topics import ALL, downward

HOST, PARENT, PINGS = "127.0.0.1", "north", 300
PING = b"\xc0\x00"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--connections", type=int, default=5000)
    parser.add_argument("--step", type=int, default=1000)
    options = parser.parse_args()
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    print(f"open files that a process may have: {limit}")
    with tempfile.TemporaryDirectory() as name:
        folder, port = Path(name), find_free_port()
        folder.chmod(0o755)  # started by root, mosquitto becomes another user
        devices = [f"d-{i:05}" for i in range(options.connections)]
        Provisioner(folder, lambda new: "").apply(
            Site(host=HOST, port=port, hospital=PARENT, devices=(devices[0],)), plain=True
        )
        admit(folder, devices)
        broker = subprocess.Popen(
            [find_mosquitto() or "mosquitto", "-c", folder / "broker" / "mosquitto.conf"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            measure(folder, port, devices, options.step, broker)
        finally:
            broker.kill()
            broker.wait()


def admit(folder: Path, devices: list[str]) -> None:
    """All of them are in the broker's access list, and it may have as many connections."""
    provisioner = Provisioner(folder, lambda new: "")
    assert provisioner.saved is not None
    site = replace(provisioner.saved, enrolled=tuple(f"{PARENT}/{name}" for name in devices[1:]))
    provisioner.admit(site)
    write_configuration(folder / "broker", site)
    hand_over(folder / "broker")


# Connections ----------------------------------------------------------------------------------------------------------


class Papers:
    """Signs a certificate for each device; all of them have one key, which nobody looks at."""

    def __init__(self, folder: Path):
        self.folder, self.key = folder, ec.generate_private_key(ec.SECP256R1())
        self.ca = x509.load_pem_x509_certificate((folder / "authority" / "ca.crt").read_bytes())
        self.signer = serialization.load_pem_private_key((folder / "authority" / "ca.key").read_bytes(), None)
        plain = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        self.file, self.secret = folder / "device.pem", self.key.private_bytes(*plain)

    def context(self, name: str) -> ssl.SSLContext:
        """What a device of that name connects with."""
        now = datetime.datetime.now(datetime.UTC)
        made = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)]))
            .issuer_name(self.ca.subject)
            .public_key(self.key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=30))
            .sign(self.signer, hashes.SHA256())  # type: ignore[arg-type]
        )
        self.file.write_bytes(made.public_bytes(serialization.Encoding.PEM) + self.secret)
        context = ssl.create_default_context(cafile=str(self.folder / "authority" / "ca.crt"))
        context.load_cert_chain(self.file)
        return context


def connect(papers: Papers, port: int, name: str) -> ssl.SSLSocket:
    """A device's connection with its subscription. Raises OSError if the broker does not take it."""
    line = papers.context(name).wrap_socket(socket.create_connection((HOST, port), 30), server_hostname=HOST)
    client = name.encode()
    head = b"\x00\x04MQTT\x04\x02\x02\x58" + len(client).to_bytes(2) + client
    line.sendall(b"\x10" + bytes([len(head)]) + head)
    expect(line, b"\x20\x02\x00\x00")
    topic = downward(PARENT, ALL, "+").encode()
    body = b"\x00\x01" + len(topic).to_bytes(2) + topic + b"\x01"
    line.sendall(b"\x82" + bytes([len(body)]) + body)
    expect(line, b"\x90\x03\x00\x01\x01")
    return line


def expect(line: ssl.SSLSocket, answer: bytes) -> None:
    found = b""
    while len(found) < len(answer):
        piece = line.recv(len(answer) - len(found))
        if not piece:
            raise ConnectionError("the broker has closed the line")
        found += piece
    if found != answer:
        raise ConnectionError(f"the broker has answered {found.hex()}, expected {answer.hex()}")


# Measured -------------------------------------------------------------------------------------------------------------


def measure(folder: Path, port: int, devices: list[str], step: int, broker: subprocess.Popen[bytes]) -> None:
    """Prints a line for every step, and at the end what the broker does with one more than it may have."""
    wait_until_open(port)
    papers, lines, first = Papers(folder), [], resident(broker.pid)
    began, cpu = time.monotonic(), processor(broker.pid)
    print(f"{'connections':>11} {'broker MB':>10} {'kB each':>8} {'CPU ms each':>12} {'a second':>9} {'answer ms':>10}")
    for number, name in enumerate(devices, 1):
        try:
            lines.append(connect(papers, port, name))
        except OSError as error:
            print(f"connection {number} is refused: {error}")
            break
        if number % step == 0:
            used = resident(broker.pid) - first
            spent = processor(broker.pid) - cpu
            rate = number / (time.monotonic() - began)
            print(f"{number:>11} {first + used:>10.1f} {1000 * used / number:>8.1f} {1000 * spent / number:>12.2f} "
                  f"{rate:>9.0f} {ping(lines):>10.2f}")  # fmt: skip
    for line in lines:
        line.close()


def ping(lines: list[ssl.SSLSocket]) -> float:
    """Median time until the broker answers, milliseconds."""
    times = []
    for line in random.Random(1).choices(lines, k=PINGS):
        began = time.monotonic()
        line.sendall(PING)
        expect(line, b"\xd0\x00")
        times.append(1000 * (time.monotonic() - began))
    return statistics.median(times)


def wait_until_open(port: int) -> None:
    for _ in range(400):
        try:
            socket.create_connection((HOST, port), 1).close()
            return
        except OSError:
            time.sleep(0.05)
    raise SystemExit("mosquitto does not start")


def resident(pid: int) -> float:
    """Memory of a process, MB."""
    [kb] = re.findall(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    return int(kb) / 1000


def processor(pid: int) -> float:
    """Seconds of a core that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


if __name__ == "__main__":
    main()
