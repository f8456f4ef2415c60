from training.config.schema import SOURCES
from training.presets.options import own_preset
from training.sources.kinds import SOURCE_KINDS, source_class
from training.sources.source import Source


def test_each_kind_has_a_reader_keys_and_settings_for_own_data():
    from training.config.schema import load_config

    assert SOURCE_KINDS.keys() == SOURCES.keys()
    for name, kind in SOURCE_KINDS.items():
        for form in kind.forms:
            file = own_preset(f"{form}:somewhere", {})
            assert (file is None) == kind.tokens
            if file is not None:
                config = load_config(file)
                assert config.source == name
                assert issubclass(source_class(config.source), Source)
