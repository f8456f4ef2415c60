from tests.training.conftest import no_pictures, tiny_run

__all__ = ["no_pictures", "tiny_run"]
