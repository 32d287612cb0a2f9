"""Runs a few lines of JavaScript over the mathematics of the explorables in Node."""

import json
import subprocess
from pathlib import Path

MATH = Path(__file__).parents[2] / "docs" / "explore" / "math"


def in_node(node, code, data):
    """What the lines return for `given`, which is `data`; infinities come back as texts.

    Args:
        node: path of Node.
        code: the body of an async function; `load("file.js")` imports from docs/explore/math.
        data: anything that JSON holds.
    """
    source = f"""
    import {{ readFileSync }} from "node:fs";
    const given = JSON.parse(readFileSync(0, "utf8"));
    const load = (name) => import("{MATH.as_uri()}/" + name);
    const told = await (async () => {{ {code} }})();
    const finite = (_, value) => (value === Infinity || value === -Infinity ? String(value) : value);
    console.log(JSON.stringify(told, finite));
    """
    done = subprocess.run(
        [node, "--input-type=module", "-e", source],
        input=json.dumps(data), capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
