"""Pushing a model to the Hugging Face hub. Fetching one is in download.py."""

from pathlib import Path

from longloop.types import UserError


def push(folder: Path, name: str, private: bool) -> str:
    """Put a folder's files into the hub's repository OWNER/NAME, which is made if there is none; returns its address.

    The token is the one that `hf auth login` stored, or HF_TOKEN.
    """
    import httpx2
    from huggingface_hub import HfApi

    api = HfApi()
    try:
        repository = api.create_repo(name, private=private, exist_ok=True)
        api.upload_folder(repo_id=repository.repo_id, folder_path=folder, commit_message="Exported by longloop")
    except (OSError, ValueError, httpx2.HTTPError) as error:
        first = str(error).strip().partition("\n")[0] or type(error).__name__
        raise UserError(
            f"Cannot push to {name} on the hub: {first}. Log in with `hf auth login`, or set HF_TOKEN to a token that "
            "may write; then run the same command again."
        ) from error
    return str(repository)
