"""The transformer of a run: of the size in [model], or continued from a folder."""

from pmdkit.envs.tokens.problem import TokenProblem
from pmdkit.errors import UsageError
from pmdkit.tables import ModelTable
from pmdkit.toy.model import ModelConfig, Transformer


def build_model(table: ModelTable, problem: TokenProblem, seed: int) -> Transformer:
    """A model that reads the problem's prompts and has room for its responses.

    Args:
        table: size, or the folder to start from.
        problem: gives vocabulary, prompt length and width.
        seed: of the random weights.
    """
    context = problem.prompt_length + problem.width
    if table.path is None:
        config = ModelConfig(
            vocabulary=len(problem.vocabulary),
            context=context,
            dimension=table.dimension,
            layers=table.layers,
            heads=table.heads,
            inner=max(16, 8 * (table.dimension * 8 // 3 // 8)),
        )
        return Transformer(config, seed)
    from pmdkit.toy.convert import load_pretrained

    model, vocabulary = load_pretrained(table.path)
    if tuple(vocabulary) != problem.vocabulary:
        raise UsageError(
            f"model.path {table.path} speaks {len(vocabulary)} tokens ({' '.join(vocabulary[:6])} ...), the task "
            f"{len(problem.vocabulary)} ({' '.join(problem.vocabulary[:6])} ...); expected the same vocabulary: "
            "give a model of this task"
        )
    if model.config.context < context:
        raise UsageError(
            f"model.path {table.path} reads {model.config.context} tokens; this task needs {context} for prompt and "
            "response: shorten the task, or start from a model with a longer context"
        )
    return model
