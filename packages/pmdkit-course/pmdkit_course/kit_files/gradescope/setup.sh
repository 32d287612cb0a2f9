#!/bin/sh
# Gradescope runs this once, as root, where the zip was unpacked.
set -e
apt-get update
# the newest Python that the image offers, from 3.11 on: python3 itself may be older
for python in python3.13 python3.12 python3.11; do apt-get install -y $python-venv && break; done
$python -m venv /autograder/venv
cd /autograder/source/pmdkit
/autograder/venv/bin/pip install -c constraints.txt torch
/autograder/venv/bin/pip install -c constraints.txt -e packages/strict-answers -e . \
    -e packages/pmdkit-lab -e packages/pmdkit-course
