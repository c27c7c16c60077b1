"""Pushing a model to the Hugging Face hub. Fetching one is in download.py."""

from pathlib import Path

from longloop.types import UserError

_OF_A_MODEL = [
    *("model*.safetensors", "model.safetensors.index.json", "config.json", "generation_config.json"),
    *("adapter_model*.safetensors", "adapter_config.json"),
    *("added_tokens.json", "special_tokens_map.json", "chat_template.jinja"),
]
"""Files of a model that was pushed before, which would be read with the new ones."""


def push(folder: Path, name: str, private: bool) -> str:
    """Put a folder's files into the hub's repository OWNER/NAME, which is made if there is none; returns its address.
    Of a model that was there before nothing is left. Raises UserError if a repository is there that is public where a
    private one was asked for, or the other way round.

    The token is the one that `hf auth login` stored, or HF_TOKEN.
    """
    import httpx2
    from huggingface_hub import HfApi

    api = HfApi()
    try:
        repository = api.create_repo(name, private=private, exist_ok=True)
        if bool(api.repo_info(repository.repo_id).private) != private:
            there, asked = ("public", "leave --public in") if private else ("private", "leave out --public")
            raise UserError(f"{name} is on the hub already, and {there}: {asked}, or name another repository.")
        api.upload_folder(
            repo_id=repository.repo_id,
            folder_path=folder,
            commit_message="Exported by longloop",
            delete_patterns=_OF_A_MODEL,
        )
    except (OSError, ValueError, httpx2.HTTPError) as error:
        first = str(error).strip().partition("\n")[0] or type(error).__name__
        raise UserError(
            f"Cannot push to {name} on the hub: {first}. Log in with `hf auth login`, or set HF_TOKEN to a token that "
            "may write; then run the same command again."
        ) from error
    return str(repository)
