#!/bin/sh
# Gradescope runs this once, as root, where the zip was unpacked.
set -e
apt-get update && apt-get install -y python3-pip python3-venv
python3 -m venv /autograder/venv
cd /autograder/source/pmdkit
/autograder/venv/bin/pip install -c constraints.txt -e packages/strict-answers -e . \
    -e packages/pmdkit-lab -e packages/pmdkit-course
