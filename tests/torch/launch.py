#!/usr/bin/python3
"""A PyTorch program starts under every launcher of labs/torch/launch, and trains with the same losses.

    launch.py [--ringrun PROGRAM] [--only torchrun|ringrun|slurm|kubernetes]

torchrun and ringrun are the real programs. Slurm is emulated: srun and scontrol are scripts here, which set the variables
that Slurm sets. So is Kubernetes: the manifests are parsed, every field is checked for its place and type, the parts must
fit together, and then every pod's command runs here, in the environment that Kubernetes would give it. The emulator
replaces text for DNS, mounted volumes and the image's files. No cluster has run the manifests.
"""
import argparse
import copy
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

import ranks

LAUNCH = ranks.TOP / "labs/torch/launch"
PROGRAM = ranks.TOP / "labs/torch/train.py"
STEPS = ["--steps", "3", "--model", "cnn"]
LIMIT = 150  # seconds per job


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def variables(**more):
    """Returns an environment without a rank's variables."""
    kept = {name: value for name, value in os.environ.items()
            if not re.match(r"(RANK|LOCAL_|WORLD_SIZE|MASTER_|RINGSMITH_STORE|SLURM|TORCHELASTIC|OMPI_COMM|USE_LIBUV)", name)}
    return {**kept, "PYTHONPATH": str(ranks.BUILD), "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONFAULTHANDLER": "1", "GLOO_SOCKET_IFNAME": "lo", **more}


def descendants(pid):
    """Returns the processes that a process has started, and theirs."""
    found = []
    for children in pathlib.Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            direct = children.read_text().split()
        except OSError:  # the thread has ended meanwhile
            continue
        for child in map(int, direct):
            found += [child, *descendants(child)]
    return found


def send(pids, number):
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            pass


def run(commands, what):
    """Runs [(argv, environment)] together, and returns their outputs. The first failure or the deadline ends all."""
    with tempfile.TemporaryDirectory() as folder:
        running = []
        for n, (command, environment) in enumerate(commands):
            out = open(f"{folder}/{n}", "a+")
            running.append((subprocess.Popen(command, env=environment, stdout=out, stderr=subprocess.STDOUT,
                                             start_new_session=True), out))
        until = time.monotonic() + LIMIT
        while time.monotonic() < until:
            codes = [process.poll() for process, _ in running]
            if all(code is not None for code in codes) or any(codes):
                break
            time.sleep(0.05)
        hung = not any(code is not None for code in codes)
        for process, _ in running:
            if process.poll() is None:
                family = [process.pid, *descendants(process.pid)]  # torchrun starts its ranks in other sessions
                send(family, signal.SIGABRT if hung else signal.SIGTERM)  # at SIGABRT, Python writes its stacks
                try:
                    process.wait(10)
                except subprocess.TimeoutExpired:
                    pass
                send(family, signal.SIGKILL)
                process.wait()
        texts = []
        for _, out in running:
            out.seek(0)
            texts.append(out.read())
            out.close()
    if any(codes) or None in codes:
        sys.exit(f"{what}: exit codes {codes}{' (it hung)' if hung else ''}:\n" + "\n".join(text[-3000:] for text in texts))
    return texts


def loss_of(texts, world, what):
    """Returns the line's end, "loss X to Y", that rank 0 prints."""
    found = re.findall(rf"over \w+, {world} ranks: .*(loss [\d.]+ to [\d.]+)", "\n".join(texts))
    assert len(found) == 1, f"{what}: {texts}"
    return found[0]


# ---- torchrun and ringrun ----
def has_libuv():
    """Returns whether this PyTorch's store works as PyTorch opens it by default."""
    code = "import ringsmith_torch, os; print(os.environ.get('USE_LIBUV'))"
    done = subprocess.run([ranks.PYTHON, "-c", code], env=variables(), capture_output=True, text=True, check=True)
    return done.stdout.strip() != "0"


def torchrun(world):
    options, more = ["--standalone"], {}
    if ranks.torch_version() < (2, 0):
        options = ["--master_addr=127.0.0.1", f"--master_port={free_port()}", "-r", "1", "-t", "1"]
    elif not has_libuv():  # torchrun's own store is then a file
        options = ["--rdzv_backend=c10d", "--rdzv_conf=store_type=file", "--local_addr=127.0.0.1"]
        more = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
    command = [shutil.which("torchrun"), f"--nproc_per_node={world}", *options, str(PROGRAM), *STEPS]
    return loss_of(run([(command, variables(**more))], "torchrun"), world, "torchrun")


def ringrun(program, world, backend="ringsmith"):
    command = [program, "--standalone", "--nproc-per-node", str(world), "--", ranks.PYTHON, str(PROGRAM), *STEPS,
               "--backend", backend]
    return loss_of(run([(command, variables())], f"ringrun, {backend}"), world, "ringrun")


# ---- Slurm: scripts in the places of its programs ----
SRUN = """#!/bin/bash
# As srun: one process per task, with Slurm's variables.
while [ "${1#--}" != "$1" ]; do shift; done
for ((task = 0; task < SLURM_NTASKS; ++task)); do
  SLURM_PROCID=$task SLURM_LOCALID=$((task % SLURM_NTASKS_PER_NODE)) SLURM_STEP_ID=0 "$@" &
done
status=0
for ((task = 0; task < SLURM_NTASKS; ++task)); do wait -n || status=$?; done
exit $status
"""
SCONTROL = """#!/bin/bash
[ "$1 $2" = "show hostnames" ] && [ "$3" = "$SLURM_JOB_NODELIST" ] || exit 1
printf '127.0.0.1\\n127.0.0.2\\n'
"""


def slurm(world):
    with tempfile.TemporaryDirectory() as folder:
        for name, text in (("srun", SRUN), ("scontrol", SCONTROL)):
            path = pathlib.Path(folder, name)
            path.write_text(text)
            path.chmod(0o755)
        environment = variables(PATH=f"{folder}:{os.environ['PATH']}", SLURM_JOB_NODELIST="node[1-2]", SLURM_NTASKS=str(world),
                                SLURM_JOB_ID=str(free_port()), SLURM_NTASKS_PER_NODE=str(world // 2), SLURM_CPUS_PER_TASK="1")
        return loss_of(run([([str(LAUNCH / "slurm.sh"), ranks.PYTHON, str(PROGRAM), *STEPS], environment)], "slurm"), world,
                       "slurm")


# ---- Kubernetes: fields ----
STRINGS = [str]
NAMES = {"matchLabels": {"*": str}}
METADATA = {"name": str, "labels": {"*": str}}
QUANTITY = re.compile(r"^\d+(\.\d+)?(m|[kMGT]i?)?$")
RESOURCES = {"requests": {"*": QUANTITY}, "limits": {"*": QUANTITY}}
CONTAINER = {
    "name": str, "image": str, "command": STRINGS, "args": STRINGS, "resources": RESOURCES,
    "env": [{"name": str, "value": str, "valueFrom": {"fieldRef": {"fieldPath": str}}}],
    "ports": [{"containerPort": int, "name": str}],
    "volumeMounts": [{"name": str, "mountPath": str, "readOnly": bool, "subPath": str}],
}
POD = {
    "subdomain": str, "restartPolicy": re.compile("^(Never|OnFailure)$"), "containers": [CONTAINER],
    "securityContext": {"runAsNonRoot": bool, "runAsUser": int, "runAsGroup": int, "fsGroup": int},
    "volumes": [{"name": str, "secret": {"secretName": str, "defaultMode": int}}],
}
KINDS = {
    ("v1", "Service"): {"metadata": METADATA, "spec": {"clusterIP": str, "publishNotReadyAddresses": bool, "selector": {"*": str}}},
    ("networking.k8s.io/v1", "NetworkPolicy"): {
        "metadata": METADATA, "spec": {"podSelector": NAMES, "policyTypes": STRINGS, "ingress": [{"from": [{"podSelector": NAMES}]}]}},
    ("batch/v1", "Job"): {
        "metadata": METADATA,
        "spec": {"completionMode": re.compile("^(Indexed|NonIndexed)$"), "completions": int, "parallelism": int,
                 "backoffLimit": int, "activeDeadlineSeconds": int, "template": {"metadata": METADATA, "spec": POD}}},
}


def check_fields(value, shape, where):
    """Raises ValueError for a field that the API does not have in that place, or of another type."""
    if isinstance(shape, dict):
        if not isinstance(value, dict):
            raise ValueError(f"{where} must be a map")
        for key, inner in value.items():
            if key not in shape and "*" not in shape:
                raise ValueError(f"{where} has no field '{key}'")
            check_fields(inner, shape.get(key, shape.get("*")), f"{where}.{key}")
    elif isinstance(shape, list):
        if not isinstance(value, list) or not value:
            raise ValueError(f"{where} must be a list")
        for n, inner in enumerate(value):
            check_fields(inner, shape[0], f"{where}[{n}]")
    elif isinstance(shape, re.Pattern):
        if not isinstance(value, str) or not shape.match(value):
            raise ValueError(f"{where} is {value!r}")
    elif type(value) is not shape:  # not isinstance: True is an int
        raise ValueError(f"{where} must be {shape.__name__}, but is {value!r}")


def need(condition, text):
    if not condition:
        raise ValueError(text)


def check_manifest(documents):
    """Raises ValueError unless all fields exist and the objects fit together; returns the job."""
    kinds = {}
    for document in documents:
        kind = (document.get("apiVersion"), document.get("kind"))
        need(kind in KINDS, f"unknown kind {kind}")
        check_fields({k: v for k, v in document.items() if k not in ("apiVersion", "kind")}, KINDS[kind], kind[1])
        kinds[kind[1]] = document
    service, job = kinds["Service"], kinds["Job"]
    name, spec = job["metadata"]["name"], job["spec"]
    pod = spec["template"]["spec"]
    container = pod["containers"][0]
    need(spec["completionMode"] == "Indexed", "pods have an index only in an Indexed job")
    need(spec["completions"] == spec["parallelism"], "all ranks must run at the same time: parallelism = completions")
    need(re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", name), f"{name} is not a DNS label")
    need(len(f"{name}-{spec['completions'] - 1}") <= 63, "the pods' names are longer than 63 characters")
    need(spec["backoffLimit"] == 0 and pod["restartPolicy"] == "Never", "one restarted pod cannot join the other ranks again")
    need(service["spec"].get("clusterIP") == "None", "only a headless service (clusterIP: None) names pods")
    need(service["spec"].get("publishNotReadyAddresses") is True, "pods that are not ready would have no names")
    need(service["metadata"]["name"] == pod.get("subdomain"), "the pods' subdomain must be the service's name")
    labels = {"job-name": name, "batch.kubernetes.io/job-name": name}  # added by Kubernetes
    selectors = [service["spec"]["selector"]]
    if "NetworkPolicy" in kinds:
        policy = kinds["NetworkPolicy"]["spec"]
        selectors += [policy["podSelector"]["matchLabels"]]
        selectors += [one["podSelector"]["matchLabels"] for rule in policy["ingress"] for one in rule["from"]]
    for selector in selectors:
        need(all(labels.get(key) == value for key, value in selector.items()), f"no pod has the labels {selector}")
    text = json.dumps(container)
    for host in re.findall(r"\b([a-z0-9-]+-\d+)\.([a-z0-9-]+)\b", text):
        if host[0].startswith(name):
            need(host == (f"{name}-0", pod["subdomain"]), f"no pod is called {'.'.join(host)}")
    need(f"{name}-0.{pod['subdomain']}" in text, "the ranks do not know the address of pod 0")
    env = {one["name"]: one.get("value") for one in container.get("env", [])}
    for one in container.get("env", []):
        need(("value" in one) != ("valueFrom" in one), f"{one['name']} needs a value or a valueFrom")
    if "WORLD_SIZE" in env:
        need(env["WORLD_SIZE"] == str(spec["completions"]), "WORLD_SIZE is not the number of pods")
        need("RANK" in env and "MASTER_PORT" in env, "RANK or MASTER_PORT is missing")
    else:
        nodes = re.search(r"--nnodes (\d+)", text)
        need(nodes and int(nodes[1]) == spec["completions"], "--nnodes is not the number of pods")
    volumes = {one["name"] for one in pod.get("volumes", [])}
    mounts = {one["name"] for one in container.get("volumeMounts", [])}
    need(volumes == mounts, f"volumes {volumes}, but mounted are {mounts}")
    for volume in pod.get("volumes", []):
        mode = volume["secret"].get("defaultMode", 0o644)
        need(mode & 0o007 == 0, "every user of the container can read the secret")
        need("runAsUser" not in pod.get("securityContext", {}) or (mode & 0o040 and "fsGroup" in pod["securityContext"]),
             "the container's user cannot read root's file: it needs fsGroup and mode 0440")
    return job


# Mistakes in a manifest, each of which the checks must find: (path to the field, its value, words of the error).
def planted(rank_per_pod):
    job = 2 if rank_per_pod else 1
    pod = (job, "spec", "template", "spec")
    yield (job, "spec", "completionMode"), "NonIndexed", "index"
    yield (job, "spec", "parallelism"), 1, "same time"
    yield (job, "spec", "completions"), "4", "must be int"
    yield (job, "spec", "replicas"), 4, "no field 'replicas'"
    yield (job, "spec", "backoffLimit"), 6, "restarted pod"
    yield (job, "metadata", "name"), "Train", "DNS label"
    yield (job, "metadata", "name"), "other", "no pod"
    yield (job, "apiVersion"), "batch/v1beta1", "unknown kind"
    yield (0, "spec", "clusterIP"), "10.0.0.1", "headless"
    yield (0, "spec", "publishNotReadyAddresses"), False, "not ready"
    yield (0, "spec", "selector"), {"app": "train"}, "labels"
    yield (*pod, "subdomain"), "elsewhere", "subdomain"
    yield (*pod, "restartPolicy"), "Always", "restartPolicy"
    yield (*pod, "containers", 0, "command"), "python3 train.py", "must be a list"
    yield (*pod, "containers", 0, "resources", "limits", "memory"), "8 GB", "memory"
    if rank_per_pod:
        yield (1, "spec", "ingress", 0, "from", 0, "podSelector", "matchLabels"), {"app": "x"}, "labels"
        yield (*pod, "containers", 0, "env", 2, "value"), 4, "must be str"
        yield (*pod, "containers", 0, "env", 2, "value"), "3", "number of pods"
        yield (*pod, "containers", 0, "env", 3, "value"), "train-1.train", "no pod is called"
        yield (*pod, "containers", 0, "env", 3, "value"), "train-0.tain", "no pod is called"
    else:
        yield (*pod, "volumes", 0, "name"), "other", "volumes"
        yield (*pod, "volumes", 0, "secret", "defaultMode"), 0o444, "every user"
        yield (*pod, "volumes", 0, "secret", "defaultMode"), 0o400, "cannot read"


def put(documents, path, value):
    documents = copy.deepcopy(documents)
    at = documents
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value
    return documents


# ---- Kubernetes: its environment ----
def value_of(one, index):
    if "value" in one:
        return one["value"]
    path = one["valueFrom"]["fieldRef"]["fieldPath"]
    assert path == "metadata.annotations['batch.kubernetes.io/job-completion-index']", f"the emulator lacks {path}"
    return str(index)


def mount_secret(folder, mode, content):
    """Lays out a secret's volume as the kubelet does: a file behind two links."""
    data = folder / "..2026_01_01_00_00_00.1"
    data.mkdir(parents=True)
    (data / "secret").write_text(content)
    (data / "secret").chmod(mode)
    (folder / "..data").symlink_to(data.name)
    (folder / "secret").symlink_to("..data/secret")


def pods(job, folder, program):
    """Yields (argv, environment) of every pod."""
    spec = job["spec"]
    pod = spec["template"]["spec"]
    container = pod["containers"][0]
    name = job["metadata"]["name"]
    ports = {}
    for index in range(spec["completions"]):
        own = folder / f"pod-{index}"
        (own / "tmp").mkdir(parents=True)
        replaced = {f"{name}-0.{pod['subdomain']}": "127.0.0.1", "/app/train.py": f"{PROGRAM} {' '.join(STEPS)}",
                    "/tmp/": f"{own}/tmp/"}
        for one in container.get("volumeMounts", []):
            mode = next(v for v in pod["volumes"] if v["name"] == one["name"])["secret"]["defaultMode"]
            mount_secret(own / "mounted", mode, "a secret of the test: 0123456789abcdef\n")
            replaced[one["mountPath"]] = str(own / "mounted")

        def here(text):
            for old, new in replaced.items():  # noqa: B023
                text = text.replace(old, new)
            # Fixed ports may be in use on this machine.
            return re.sub(r"\b29[45]00\b", lambda m: str(ports.setdefault(m[0], free_port())), text)
        env = {one["name"]: here(value_of(one, index)) for one in container.get("env", [])}
        argv = [here(word) for word in [*container["command"], *container.get("args", [])]]
        if argv[0] == "python3":
            argv = [ranks.PYTHON, *" ".join(argv[1:]).split()]
        bins = own / "bin"
        bins.mkdir()
        (bins / "python3").symlink_to(ranks.PYTHON)
        if program:
            (bins / "ringrun").symlink_to(program)
        yield argv, variables(PATH=f"{bins}:/usr/bin:/bin", HOSTNAME=f"{name}-{index}", JOB_COMPLETION_INDEX=str(index), **env)


def kubernetes(file, ranks_per_pod, program):
    import yaml
    documents = list(yaml.safe_load_all((LAUNCH / file).read_text()))
    job = check_manifest(documents)
    mistakes = list(planted(ranks_per_pod == 1))
    for path, value, words in mistakes:
        try:
            check_manifest(put(documents, path, value))
        except ValueError as error:
            assert words in str(error), f"{file}, {path} = {value!r}: '{words}' is not in: {error}"
        else:
            sys.exit(f"{file}: {path} = {value!r} is not found to be wrong")
    print(f"{file}: its fields are valid; {len(mistakes)} planted mistakes are found", flush=True)
    if ranks_per_pod > 1 and not program:
        return None
    with tempfile.TemporaryDirectory() as folder:
        world = job["spec"]["completions"] * ranks_per_pod
        return loss_of(run(list(pods(job, pathlib.Path(folder), program)), file), world, file)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ringrun", default=str(ranks.TOP / "build/release/bin/ringrun"), help="the program (make build)")
    parser.add_argument("--only", default="")
    args = parser.parse_args()
    ranks.leave_if_impossible()
    program = args.ringrun if os.access(args.ringrun, os.X_OK) else None
    without = f"NOT RUN: no {args.ringrun} (make build)"
    cases = {
        "torchrun": lambda: torchrun(4),
        "ringrun": lambda: program and ringrun(program, 4),
        "ringrun, gloo": lambda: program and ringrun(program, 4, "gloo"),
        "slurm.sh, emulated": lambda: slurm(4),
        "kubernetes.yaml, emulated": lambda: kubernetes("kubernetes.yaml", 1, program),
        "kubernetes-ringrun.yaml, emulated": lambda: kubernetes("kubernetes-ringrun.yaml", 2, program),
    }
    losses = {}
    for name, case in cases.items():
        if args.only in name:
            losses[name] = case()
            print(f"{name}: {losses[name] or without}", flush=True)
    said = {loss for loss in losses.values() if loss}
    assert len(said) <= 1, f"losses differ between launchers: {losses}"


if __name__ == "__main__":
    sys.exit(main())
