#!/bin/sh
# Gradescope runs this once, as root, where the zip was unpacked.
set -e
apt-get update
# the newest Python that the image offers, from 3.11 on: python3 itself may be older
for python in python3.13 python3.12 python3.11; do apt-get install -y $python-venv && break; done
umask 022
$python -m venv /autograder/venv
cd /autograder/source/pmdkit
pip="/autograder/venv/bin/pip install --no-deps"
# every file is checked against its sha256; torch is the build for CPUs
$pip --require-hashes --only-binary :all: --extra-index-url https://download.pytorch.org/whl/cpu \
    -r requirements/torch.txt -r requirements/image.txt
# what answers import is a copy that they can read; the course, which has the solutions, stays here, where root alone can
$pip --no-index --no-build-isolation packages/strict-answers . packages/pmdkit-lab
$pip --no-index --no-build-isolation -e packages/pmdkit-course
chmod 700 /autograder/source
