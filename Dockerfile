# pmdkit and its companions with torch for CPUs: docker build -t pmdkit . && docker run --rm -it pmdkit tour
FROM python:3.11.14-slim-trixie
WORKDIR /opt/pmdkit
COPY . .
# every file is checked against its sha256; nothing is downloaded after that
RUN pip install --no-cache-dir --require-hashes --no-deps --only-binary :all: \
        --extra-index-url https://download.pytorch.org/whl/cpu -r requirements/torch.txt -r requirements/image.txt \
    && pip install --no-cache-dir --no-index --no-deps --no-build-isolation \
        packages/strict-answers . packages/pmdkit-lab packages/pmdkit-course packages/pmdkit-adapters \
    && useradd --create-home --uid 1000 learner
USER 1000
WORKDIR /home/learner
ENTRYPOINT ["pmdkit"]
CMD ["--help"]
