"""Reading files of other systems into records, and writing them: a module for each kind of file, and the choice between their formats.

A module here declares its formats as `FORMAT`; FORMATS finds them, and those of other packages. `base` has what formats share, and
`responses` reads the answers of engines and libraries, which formats of other packages import.

Readers never raise anything but InputError, and that only when a whole file is unusable. A row that cannot be used is
a RowError in the result; every other row is kept.
"""

from cems_workbench.formats.base.choosing import (
    Written,
    detect,
    log_format,
    read,
    read_path,
    write_dataset,
    write_judgments,
)
from cems_workbench.formats.base.files import Sample
from cems_workbench.formats.base.format import (
    FORMATS,
    DataSet,
    DatasetWriter,
    Exported,
    Format,
    JudgmentWriter,
    dataset_writers,
    judgment_writers,
)

__all__ = [
    "FORMATS",
    "DataSet",
    "DatasetWriter",
    "Exported",
    "Format",
    "JudgmentWriter",
    "Sample",
    "Written",
    "dataset_writers",
    "detect",
    "judgment_writers",
    "log_format",
    "read",
    "read_path",
    "write_dataset",
    "write_judgments",
]
