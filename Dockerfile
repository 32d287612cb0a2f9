# pmdkit and its companions with torch for CPUs: docker build -t pmdkit . && docker run --rm -it pmdkit tour
FROM python:3.11.14-slim-trixie
WORKDIR /opt/pmdkit
COPY . .
RUN pip install --no-cache-dir --extra-index-url https://download.pytorch.org/whl/cpu -c constraints.txt torch \
    && pip install --no-cache-dir -c constraints.txt packages/strict-answers '.[llm]' packages/pmdkit-lab packages/pmdkit-course \
    && useradd --create-home --uid 1000 learner
USER 1000
WORKDIR /home/learner
ENTRYPOINT ["pmdkit"]
CMD ["--help"]
