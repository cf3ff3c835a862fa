"""Reading files of other systems into records, and writing them: a module for each kind of record, and the choice between formats.

A module here declares `FORMAT`, a format or several; FORMATS finds them, and those of other packages. formats.json says what each is
called and has, the modules how it is recognised, read and written. `base` has what formats share. Beside them stand forms that
are not imported into a store: `runs`, `recorded_answers` and `responses`.

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
