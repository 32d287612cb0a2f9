#!/bin/sh
# pmdkit.cdx.json: the packages that pmdkit and its companions are tested with, in CycloneDX; tools/release-check.sh installs the tool.
#   sh tools/sbom.sh
set -eu
cd "$(dirname "$0")/.."
cat requirements/torch.txt requirements/image.txt >.venv-release/sbom.txt
.venv-release/bin/cyclonedx-py requirements --pyproject pyproject.toml --output-reproducible --of JSON -o pmdkit.cdx.json \
  .venv-release/sbom.txt
