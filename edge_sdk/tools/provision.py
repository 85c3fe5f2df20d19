"""Certificates and the broker's configuration for one hospital, made with the openssl command.

    python -m edge_sdk.tools.provision DIR --hospital st-mary --host broker.st-mary.example --devices wrist-1 wrist-2

A certificate names its holder (CN); the broker takes that name as user and as client id, and its access list lets each
device publish and read only its own topics. Copy to a device: ca.crt and its own two files, nothing else.
"""

from __future__ import annotations

import argparse
import ipaddress
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from edge_sdk.contract.run import checked_name
from edge_sdk.errors import UsageError

CA_DAYS, DAYS = 3650, 825
KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")

MOSQUITTO = """# mosquitto for hospital {hospital}
per_listener_settings false
listener {port}
cafile {directory}/ca.crt
certfile {directory}/broker.crt
keyfile {directory}/broker.key
require_certificate true
use_identity_as_username true
use_username_as_clientid true
allow_anonymous false
acl_file {directory}/acl
set_tcp_nodelay true
persistence false
max_inflight_messages 100
max_queued_messages 10000
"""

ACCESS = """# who may do what; %u is the name in the certificate
user {hospital}
topic read auscult/v1/{hospital}/+/up/+
topic write auscult/v1/{hospital}/+/down/+

pattern write auscult/v1/{hospital}/%u/up/+
pattern read auscult/v1/{hospital}/%u/down/+
pattern read auscult/v1/{hospital}/all/down/+
"""


def provision(directory: Path, hospital: str, host: str, devices: Sequence[str], port: int = 8883) -> None:
    """Makes the files that are not there yet: for authority, broker, hospital and devices. Existing ones are kept.

    Args:
        directory: where the files go; mosquitto.conf names it, so it is where the broker reads them.
        hospital: name of the parent of all devices.
        host: under which nodes reach the broker: a name or an address.
        port: on which the broker listens.

    Raises:
        UsageError: there is no openssl, or a name cannot be used.
    """
    if shutil.which("openssl") is None:
        raise UsageError("provision needs the openssl command (Debian: apt install openssl)")
    for name in (hospital, *devices):
        checked_name(name, "name")
    directory = directory.resolve()
    directory.mkdir(parents=True, exist_ok=True)
    make_authority(directory, hospital)
    make_certificate(directory, "broker", host, alternative=host)
    for name in (hospital, *devices):
        make_certificate(directory, name, name)
    (directory / "acl").write_text(ACCESS.format(hospital=hospital))
    (directory / "acl").chmod(0o600)
    config = MOSQUITTO.format(hospital=hospital, port=port, directory=directory)
    (directory / "mosquitto.conf").write_text(config)


def make_authority(directory: Path, hospital: str) -> None:
    """Makes ca.key and ca.crt, which sign all the others, unless they are there."""
    if (directory / "ca.key").exists():
        return
    subject = ("-subj", f"/CN={hospital} authority", "-days", str(CA_DAYS))
    usage = ("-addext", "basicConstraints=critical,CA:TRUE", "-addext", "keyUsage=critical,keyCertSign,cRLSign")
    run_openssl(directory, "req", "-x509", *KEY, "-keyout", "ca.key", "-out", "ca.crt", *subject, *usage)


def make_certificate(directory: Path, file: str, name: str, alternative: str = "", days: int = DAYS) -> None:
    """Makes `file`.key and `file`.crt for a holder called `name`, signed by the authority of the directory."""
    if (directory / f"{file}.crt").exists():
        return
    run_openssl(directory, "req", *KEY, "-keyout", f"{file}.key", "-out", f"{file}.csr", "-subj", f"/CN={name}")
    (directory / f"{file}.ext").write_text(f"subjectAltName={format_alternative(alternative)}\n" if alternative else "")
    signing = ("-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-days", str(days))
    run_openssl(
        directory, "x509", "-req", "-in", f"{file}.csr", "-out", f"{file}.crt", "-extfile", f"{file}.ext", *signing
    )
    for rest in ("csr", "ext"):
        (directory / f"{file}.{rest}").unlink()


def format_alternative(host: str) -> str:
    """An address or a name, as openssl wants it for a subjectAltName."""
    try:
        return f"IP:{ipaddress.ip_address(host)}"
    except ValueError:
        return f"DNS:{host}"


def run_openssl(directory: Path, *arguments: str) -> None:
    """Runs openssl in a directory, or raises UsageError with the last line that it said."""
    done = subprocess.run(["openssl", *arguments], cwd=directory, capture_output=True, text=True)
    if done.returncode:
        raise UsageError(f"openssl {arguments[0]} failed: {done.stderr.strip().splitlines()[-1]}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("directory", type=Path)
    parser.add_argument("--hospital", required=True)
    parser.add_argument("--host", required=True, help="under which devices reach the broker")
    parser.add_argument("--port", type=int, default=8883)
    parser.add_argument("--devices", nargs="*", default=[])
    args = parser.parse_args()
    provision(args.directory, args.hospital, args.host, args.devices, args.port)
    print(f"mosquitto -c {args.directory.resolve() / 'mosquitto.conf'}")


if __name__ == "__main__":
    main()
