"""Files that launch lines name, and files that a script writes.

Examples are `--deepspeed_config ds.json` and `sbatch train.sh`.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from itertools import chain, pairwise, zip_longest
from pathlib import Path, PurePath
from posixpath import basename, dirname, isabs, join, relpath
from typing import Final

from ...dataclass import dataclass
from ...findings import Location
from ...patterns import lazy_pattern
from ...submission.launches import Launch
from ...submission.references import Reference
from ...submission.repository import program_of, program_path, strings_beside
from ...submission.script import CommandDocument, LaunchScript
from ...submission.submission import Submission
from ...text.around import is_before_writing, is_readable, is_there, text_around
from ...text.document import Document, Kind
from ...text.lookup import Files, end_alike, is_written, place_of
from ...text.shell.records import Word
from ...text.slips import is_slip
from .front_ends import front_ends
from .own_options import trained_by

#: Options of training programs that take the path of a DeepSpeed config. `--deepspeed` alone is a
#: switch of Megatron's.
_CONFIG_OPTION: Final = lazy_pattern(
    r"--deepspeed|--(?:deepspeed|ds)[-_]config(?:[-_](?:file|path))?"
)
#: Options that name a file which is read.
_READS: Final = lazy_pattern(r"--?[\w.-]*config")
#: Groups of a parser, `--training_arguments.deepspeed ds.json`, and of Hydra:
#: `++train.deepspeed_config=ds.json`.
_NESTED: Final = lazy_pattern(r"^(?:--(?:\w+\.)+|\+{0,2}(?:\w+\.)*(?=\w[\w-]*=))")
#: The variable that names a DeepSpeed config for Lightning.
LIGHTNING_CONFIG: Final = "PL_DEEPSPEED_CONFIG_PATH"
#: A word that is an input of an AzureML job: `${{inputs.ds_config}}`.
_INPUT: Final = lazy_pattern(r"[\"']?\$\{\{\s*inputs\.([\w-]+)\s*\}\}[\"']?")
#: Options of launchers, and the kind of document that they name.
_LAUNCHER_OPTIONS: Final[tuple[tuple[str, str, Kind], ...]] = (
    ("deepspeed", "--hostfile", "hostfile"),
    ("mpirun", "--hostfile", "hostfile"),
    ("accelerate", "--deepspeed_config_file", "DeepSpeed config"),
    ("accelerate", "--deepspeed_hostfile", "hostfile"),
    ("accelerate", "--config_file", "accelerate config"),
)
#: Options that name a file which is read, so that the word behind them isn't one that is made.
_NAMING: Final = lazy_pattern(
    "|".join((_CONFIG_OPTION.pattern, *(option for _, option, _ in _LAUNCHER_OPTIONS)))
)
#: The kinds that others may name or use.
NAMED: Final[tuple[Kind, ...]] = (
    "DeepSpeed config",
    "accelerate config",
    "FSDP config",
    "hostfile",
    "launch script",
    "training arguments",
    "front end config",
    "Megatron arguments",
    "Megatron-Bridge config",
    "job spec",
    "environment file",
)
#: Options that name a file which the program writes: `--output_file`, `--save-json`.
_WRITES: Final = lazy_pattern(
    r"--?(?:[\w-]*[_-])?(?:out|outfile|outputs?|save|dump|export|log|logs|results?|report|plot)"
    r"(?:[_-][\w-]*)?(?:=.*)?",
    re.DOTALL,
)
_DATA: Final = (".json", ".hjson")
_YAML: Final = (".yaml", ".yml")
_MOVES: Final = ("cd", "pushd")
_SOURCES: Final = ("source", ".")
#: Commands that make none of the files that they name, but for what the script's reader says of
#: them (`sed -i`).
_READ: Final = frozenset(
    {"cat", "diff", "echo", "grep", "head", "jq", "ls", "printf", "sed", "tail", "test", "[", "wc"}
)
#: Files of data, which a program reads or writes.
_OF_DATA: Final = (".json", ".jsonl", ".csv", ".tsv", ".txt", ".parquet")
#: Texts of a program that may be a folder's name.
_FOLDER: Final = lazy_pattern(r"\w[\w.-]{0,40}(?:/\w[\w.-]{0,40}){0,3}/?")
_MAY_BE_NAMED: Final = (*_DATA, *_YAML, ".txt", ".sh", ".bash", ".sbatch", ".slurm")


def references_of(
    document: LaunchScript | CommandDocument, files: Files, readers: Mapping[int, str]
) -> Iterator[Reference]:
    """Return the files that the launch lines of a document name.

    `readers` are the readers of DeepSpeed's configs, by line.
    """
    in_image = isinstance(document, CommandDocument) and document.in_image
    lines = _Lines(document, files, readers, _script_of(document), _starts(document), in_image)

    # A path in an image or volume names the file beside the job, or none.
    yield from (link for link in lines.references() if link.exists or not in_image)


def files_on_lines(document: LaunchScript | CommandDocument, files: Files) -> Iterator[str]:
    """The places of the files that words of the launch lines name, whatever these files hold.

    Of a file that the script itself writes, none: what lies there is of an older run.
    """
    script, starts = _script_of(document), _starts(document)
    for launch in document.launches:
        of_calls = (word for call in launch.calls for word in call.command.words)
        for word in (*launch.arguments, *of_calls):
            path = (word.path or "").rpartition("=")[2].lstrip("@")
            if not path.endswith(_MAY_BE_NAMED) or (script and script.makes(path)):
                continue
            place = files.readable_at(path, document.path, starts)
            if place is not None:
                yield place


def configures_lightning(launch: Launch) -> bool:
    """Return whether Lightning gets a DeepSpeed config by its variable.

    It doesn't where another strategy is named.

    Source: pytorch_lightning/strategies/deepspeed.py @ 2.5.5 (DEEPSPEED_ENV_VAR).
    """
    if LIGHTNING_CONFIG not in launch.environment:
        return False
    words = [word.value or word.prefix for word in launch.arguments]
    strategies = [value for option, value in pairwise(words) if option == "--strategy"]
    attached = "--strategy="
    strategies += [word.removeprefix(attached) for word in words if word.startswith(attached)]
    return all(name.startswith("deepspeed") for name in strategies if name)


def templates_of(document: Document, files: Files) -> Iterator[Document]:
    """Return the configs from which commands of a script make others.

    An example is `sed "s/STAGE/1/" ds_TEMPLATE.json > ds.json`.
    """
    if not isinstance(document, LaunchScript):
        return
    starts = _starts(document)
    for word in document.beside_launches:
        path = word.path or ""
        if path.endswith(_DATA) and not document.makes(path):
            yield from files.find(path, document.path, "DeepSpeed config", starts=starts)


def overwritten(documents: Iterable[Document], files: Files) -> frozenset[str]:
    """Return the paths of files that a script among these documents writes.

    What they hold now is what an older run left. Of a name that is known in part, as in `>
    ds_config_${NAME}.json`, they are those that no script names whole.
    """
    documents = tuple(documents)
    scripts = [document for document in documents if isinstance(document, LaunchScript)]
    configs = [
        document.path
        for document in documents
        if document.document_kind == "DeepSpeed config" and not is_written(document)
    ]
    texts = [script.shell.text.content for script in scripts]
    overwritten_paths = set[str]()
    for script in scripts:
        starts = _starts(script)
        folders = (*starts, *files.folders(script.path))
        for word in script.shell.written:
            path = word.path or ""
            is_whole = bool(word.value) or "/" in path
            place = files.document_at(path, script.path, starts) if path and is_whole else None
            if place:
                overwritten_paths.add(place)
            for config in _fitting(word, configs, folders):
                name = basename(place_of(config))
                if not any(name in text for text in texts):
                    overwritten_paths.add(config)
    return frozenset(overwritten_paths)


def _fitting(word: Word, paths: Iterable[str], folders: Iterable[str]) -> list[str]:
    """The paths in some folders that a word may mean whose value is known in part."""
    pattern = _pattern(word.parts) if word.value is None else None
    if pattern is None:
        return []
    places = {path: place_of(path).rpartition("/") for path in paths}
    return [
        path
        for path, (folder, _, name) in places.items()
        if folder in folders and pattern.fullmatch(name)
    ]


def named_config(path: object, where: Location, files: Files, reader: str) -> Iterator[Reference]:
    """The DeepSpeed config that a document names, where that is a path of JSON."""
    if isinstance(path, str) and path.endswith(_DATA):
        yield _reference("DeepSpeed config", path, where, files, reader)


def _reference(
    kind: Kind,
    path: str,
    where: Location,
    files: Files,
    reader: str | None,
    starts: tuple[str, ...] = (),
) -> Reference:
    """The file of a kind that the file at `where` means by a path."""
    documents = files.find(path, where.path, kind, starts=starts)
    exists = bool(documents) or files.exists(path, where.path, starts)
    near = None if exists else files.near(path, where.path, starts)
    # Where the folder is here, the file would be in it.
    in_folder = "/" in path and not isabs(path)
    sure = not exists and in_folder and files.has_folder(dirname(path), where.path, starts)
    return Reference(
        kind=kind,
        path=path,
        where=where,
        reader=reader,
        documents=documents,
        exists=exists,
        near=near,
        sure=sure,
    )


@dataclass(frozen=True)
class _Lines:
    """The launch lines of a script, or of the command of an AzureML job."""

    holder: LaunchScript | CommandDocument
    files: Files
    readers: Mapping[int, str]  #: of the DeepSpeed config, by launch line
    script: LaunchScript | None
    starts: tuple[str, ...]
    in_image: bool  #: whether the paths of the lines are those of an image or a volume

    def references(self) -> Iterator[Reference]:
        for launch in self.holder.launches:
            by_options = [*self._by_program(launch), *self._by_launchers(launch)]
            others = self._other(launch, {link.where for link in by_options})
            yield from (replace(link, launch=launch) for link in chain(by_options, others))
        yield from self._called()
        yield from self._gone_from_the_set()
        if isinstance(self.holder, CommandDocument):
            yield from self._inputs(self.holder)

    def _called(self) -> Iterator[Reference]:
        """Return the scripts that the script calls, which were read with it."""
        here = dirname(self.holder.path)
        if self.script is None:
            return
        for called in self.script.shell.called:
            path = relpath(called, here or ".")
            scripts = self.files.find(path, self.holder.path, "launch script", starts=self.starts)
            if scripts and scripts[0].path != self.holder.path:
                where = Location(path=self.holder.path)
                yield Reference(
                    kind="launch script", path=path, where=where, documents=scripts, exists=True
                )

    def _gone_from_the_set(self) -> Iterator[Reference]:
        """Return the files that a script sources and that are not there, though dsgen wrote them
        with it.
        """
        script = self.script
        if script is None or is_before_writing() or not self._is_of_a_set:
            return

        for command in script.shell.commands:
            if len(command.words) < 2 or command.words[0].value not in _SOURCES:
                continue
            word = command.words[1]
            path = word.path or ""
            # "$CONFIG_DIR/ends.sh", in a folder that the script finds when it runs
            if word.value is None and path and not dirname(path):
                where = script.shell.locate(word)
                link = _reference("launch script", path, where, self.files, None, self.starts)
                if not link.exists:
                    yield replace(link, whole=True)

    @cached_property
    def _is_of_a_set(self) -> bool:
        """Whether dsgen wrote the folder of the document: its plan.json is there."""
        folder = Path(self.holder.path).parent
        return '"dsgen_version"' in text_around(folder / "plan.json", folder)

    def _named(
        self,
        kind: Kind,
        path: str,
        where: Location,
        reader: str | None,
        value: Word | None,
        launch: Launch,
    ) -> Reference:
        """Return the file that a path means.

        It is what the script itself writes there, and not what lies there now.
        """
        script = self.script
        if self.in_image and kind == "DeepSpeed config" and not (script and script.makes(path)):
            # The folders of an image aren't here: a file of that name is taken for it.
            link = _reference(kind, PurePath(path).name, where, self.files, reader, self.starts)
            documents = (document for document in link.documents if not is_written(document))
            return replace(link, documents=tuple(documents))
        link = _reference(kind, path, where, self.files, reader, self.starts)
        if script is None or (link.exists and script is not self.holder):
            return link  # of the text in a service's command, what lies beside it is a copy
        if script.makes(path, value.raw if value else ""):
            return replace(link, documents=tuple(filter(is_written, link.documents)), exists=True)
        return link if link.exists else self._absent(link, value, launch)

    def _absent(self, link: Reference, value: Word | None, launch: Launch) -> Reference:
        """A reference to a file that isn't there: whether it surely is missing, or may be made."""
        path = link.path
        named_alike = self._named_by_commands.get(basename(place_of(path)), ())
        may_be_made = any(end_alike(named, path) for named in named_alike)

        is_path_known = value is None or value.value is not None
        is_sure = is_path_known and link.sure and not self._leads_elsewhere
        if is_path_known and value is not None and not is_sure:
            is_sure = _is_missing(path, launch, value)
        return replace(
            link,
            exists=may_be_made and link.near is None,
            sure=is_sure,
            whole=not is_path_known and not dirname(path) and self._is_of_a_set,
        )

    @cached_property
    def _named_by_commands(self) -> Mapping[str, list[str]]:
        """The paths that the script's commands name and so may make, by their last name."""
        paths = defaultdict[str, list[str]](list)
        for command in self.script.shell.commands if self.script else ():
            if command.words[0].value in _READ:
                continue
            for before, word in pairwise(command.words):
                if not (_NAMING.fullmatch(before.value or "") or word.raw.startswith("-")):
                    path = word.path or ""
                    paths[basename(place_of(path))].append(path)
        return paths

    @cached_property
    def _leads_elsewhere(self) -> bool:
        """Whether a command changes to a folder that isn't known."""
        commands = self.script.shell.commands if self.script else ()
        return any(
            command.words[0].value in _MOVES and command.words[-1].value is None
            for command in commands
        )

    def _by_program(self, launch: Launch) -> Iterator[Reference]:
        switch = any(word.raw == "--deepspeed" for word in launch.arguments)
        for word, following in zip_longest(launch.arguments, launch.arguments[1:]):
            option, equals, _ = word.raw.partition("=")
            value = word if equals else following
            name = _NESTED.sub("--", option + equals).rstrip("=")
            if not _CONFIG_OPTION.fullmatch(name) or value is None:
                continue
            where, reader = launch.script.locate(value), self._reader(launch, name, switch=switch)
            path = value.path
            path = path.partition("=")[2] if path and path.startswith(f"{option}=") else path
            if path and (path.endswith(_DATA) or self._is_near(path)):
                link = self._named("DeepSpeed config", path, where, reader, value, launch)
                yield self._from_start(launch, link)
            elif path is None:
                yield from self._one_of(value, where, reader)

    def _is_near(self, path: str) -> bool:
        """Return whether a path is that of a file that is there, but for a slip in its ending.

        An example is `zero3.jsn`.
        """
        if "." not in PurePath(path).name:
            return False
        if self.files.exists(path, self.holder.path, self.starts):
            return False
        near = self.files.near(path, self.holder.path, self.starts)
        return near is not None and near.endswith(_DATA)

    def _from_start(self, launch: Launch, link: Reference) -> Reference:
        """Return the file of a relative path, from where the line is started.

        The program that the line names lies there too, or in another project with the config.
        """
        program = program_path(launch) or ""
        if isabs(link.path) or isabs(program) or not program.endswith(".py"):
            return link
        starts = tuple(dict.fromkeys((*self.starts, *self.files.folders(self.holder.path))))
        with_program = [
            start
            for start in starts
            if is_readable(Path(start, program), Path(self.holder.path).parent)
        ]
        places = {place_of(join(start, link.path)) for start in with_program}
        are_there = any(
            is_written(document) or place_of(document.path) in places for document in link.documents
        )
        if link.documents and with_program and not are_there:
            return replace(link, documents=(), exists=True)
        if not with_program and not any(
            is_there(Path(start, PurePath(program).parts[0])) for start in starts
        ):
            return replace(link, sure=False)  # both are another project's, as `llava/train.py`
        return link

    def _one_of(self, word: Word, where: Location, reader: str | None) -> Iterator[Reference]:
        """Return the configs beside the script that a word may mean.

        An example is `ds_$STAGE.json`, also where branches set the variable.
        """
        variable = word.raw.rpartition("=")[2].strip("\"'{}$")
        is_variable = self.script is not None and variable in word.variables
        assignments = self.script.shell.assignments if self.script and is_variable else ()
        values = [
            (assignment.value,) if assignment.value else assignment.parts
            for assignment in assignments
            if assignment.name == variable
        ]
        patterns = [*filter(None, map(_pattern, values or [word.parts]))]
        beside = self.files.beside(self.holder.path, "DeepSpeed config") if patterns else []
        configs = tuple(
            config
            for config in beside
            if any(pattern.fullmatch(config.name) for pattern in patterns)
        )
        if configs:
            names = " or ".join(config.name for config in configs)
            yield Reference(
                kind="DeepSpeed config",
                path=names,
                where=where,
                reader=reader,
                documents=configs,
                exists=True,
            )

    def _reader(self, launch: Launch, option: str, *, switch: bool) -> str | None:
        """The program that reads the config which this option of the training program names."""
        reader = self.readers.get(id(launch))
        if reader:
            return reader
        libraries = trained_by(launch)
        if libraries == ("lightning",):
            return "lightning"
        if option == "--deepspeed":  # with a path: TrainingArguments.deepspeed
            return "huggingface"
        if launch.call("accelerate") is not None:
            return "accelerate"
        # Both are the arguments that deepspeed.add_config_arguments adds:
        # deepspeed/__init__.py:240-280 @ 0.19.8
        by_engine = libraries == ("deepspeed",) or (switch and libraries == ())
        return "deepspeed" if by_engine and option == "--deepspeed_config" else None

    def _by_launchers(self, launch: Launch) -> Iterator[Reference]:
        """Files that options of the launchers name, and Lightning's variable."""
        for call in launch.calls:
            for program, name, kind in _LAUNCHER_OPTIONS:
                option = call.options.get(name) if call.program == program else None
                value = option.values[0] if option is not None and option.values else None
                if value is not None and value.path:
                    where = launch.script.locate(value)
                    reader = "accelerate" if "deep" in name else None
                    yield self._named(kind, value.path, where, reader, value, launch)
        if configures_lightning(launch):
            variable = launch.environment[LIGHTNING_CONFIG]
            path = variable.value or ""
            if path.endswith(_DATA):
                where = launch.script.locate(variable)
                yield self._named("DeepSpeed config", path, where, "lightning", None, launch)

    def _other(self, launch: Launch, by_options: set[Location]) -> Iterator[Reference]:
        """Return documents that the program itself names, or another word of the line.

        Examples are `sbatch train.sh` and `run.py a.yaml`. Words at the places `by_options` were
        read as values of options that name a certain kind of document.
        """
        words = (launch.program, *launch.arguments)
        front_end = front_ends().get(launch.front_end) if launch.front_end else None
        keys = () if front_end is None else front_end.configs.get("options", ())
        for before, word in zip((None, *words), words, strict=False):
            if word is None:
                continue
            path = word.path or ""
            name, _, value = path.partition("=")
            path = value if name.startswith("--") or name in keys else path.lstrip("@")
            option = (word if word.raw.startswith("--") else before) or launch.program
            if option is not None and _WRITES.fullmatch(option.raw):
                continue
            is_first = path.endswith(_DATA) and before is not None and before is launch.program
            by_option = option is not None and _READS.match(option.raw) and PurePath(path).suffix
            is_read = bool(is_first or path.endswith(_YAML) or by_option)
            is_data = bool(dirname(path)) and not isabs(path) and _has_ending_of_data(path)
            if not (is_read or is_data or path.endswith(_MAY_BE_NAMED)):
                continue
            where = launch.script.locate(word)
            if where not in by_options and not (self.script and self.script.makes(path)):
                yield from self._named_by_word(
                    launch, word, path, where, is_read=is_read, is_data=is_data
                )

    def _named_by_word(
        self,
        launch: Launch,
        word: Word,
        path: str,
        where: Location,
        *,
        is_read: bool,
        is_data: bool,
    ) -> Iterator[Reference]:
        """Return what a word of a line names, or the file that it surely should name."""
        documents = self.files.find(path, self.holder.path, *NAMED, starts=self.starts)
        near = None
        if documents and documents[0].path != self.holder.path and not is_written(documents[0]):
            kind = documents[0].document_kind
            yield Reference(kind=kind, path=path, where=where, documents=documents, exists=True)
        elif (is_read or is_data) and not self.files.exists(path, self.holder.path, self.starts):
            near = self.files.near(path, self.holder.path, self.starts)
            if near is None and is_read and path and not dirname(path):
                near = self._near_in_folder_of_program(launch, path)
            if near is not None and not is_read and not self._is_slip_of_data(path, near):
                near = None
        # "$CONFIG_DIR"/fsdp_config.json, which dsgen wrote with the script
        is_whole = is_read and self._is_gone_from_the_set(path, word)
        if near is not None or is_whole:  # what else is named may be written
            yield Reference(
                kind="training arguments", path=path, where=where, near=near, whole=is_whole
            )

    def _near_in_folder_of_program(self, launch: Launch, name: str) -> str | None:
        """The name of a file, of which this is a slip, in a folder to which a program joins it.

        The program has the folder's name as a text: `os.path.join("configs", args.config)`.
        """
        program = program_of(launch)
        if program is None:
            return None
        here = self.holder.path
        folders = [
            folder
            for folder in sorted(filter(_FOLDER.fullmatch, strings_beside(program)))
            if self.files.has_folder(folder, here, self.starts)
        ]
        paths = [join(folder, name) for folder in folders]
        if any(self.files.exists(path, here, self.starts) for path in paths):
            return None
        nearest = {self.files.near(path, here, self.starts) for path in paths} - {None}
        names = {basename(near) for near in nearest if near and dirname(near) in folders}
        return names.pop() if len(names) == 1 else None

    def _is_slip_of_data(self, path: str, near: str) -> bool:
        """Whether a file of data that isn't there is meant to be one that is, and none is written.

        One that no other word names is meant where its folder has the slip: a file of its name is
        in the other. Where its own name has it, `result.json` may be written beside
        `results.json`, and `train.jsonl` beside `train.json`.
        """
        stem, other = PurePath(path).stem, PurePath(near).stem
        is_plural = f"{stem}s" == other or stem == f"{other}s"
        ending = PurePath(path).suffix
        is_of_other_kind = ending in _OF_DATA and ending != PurePath(near).suffix
        return (
            not (is_plural or is_of_other_kind)
            and len(self._named_by_commands.get(basename(path), ())) <= 1
        )

    def _is_gone_from_the_set(self, path: str, word: Word) -> bool:
        """Whether a file isn't there that a script of dsgen's names in the script's own folder."""
        in_own_folder = word.value is None and path != "" and not dirname(path)
        exists = self.files.exists(path, self.holder.path, self.starts)
        return in_own_folder and not exists and not is_before_writing() and self._is_of_a_set

    def _inputs(self, job: CommandDocument) -> Iterator[Reference]:
        """Return local files that a command gets as inputs of its job.

        An example is `--deepspeed_config ${{inputs.ds_config}}`.
        """
        for launch in job.launches:
            for option, value in pairwise(launch.arguments):
                if not _CONFIG_OPTION.fullmatch(option.raw):
                    continue
                binding = _INPUT.fullmatch(value.raw)
                file = job.input_file(binding[1]) if binding else None
                if file is None:
                    continue
                path, where = file
                if path.endswith(_DATA):
                    reader = self._reader(launch, option.raw, switch=False)
                    yield self._named("DeepSpeed config", path, where, reader, None, launch)


def _has_ending_of_data(path: str) -> bool:
    """Whether a path ends as files of data do, but for a slip."""
    ending = PurePath(path).suffix
    return ending in _OF_DATA or any(is_slip(ending, each) for each in _OF_DATA if ending)


def _starts(holder: LaunchScript | CommandDocument) -> tuple[str, ...]:
    """Return the folders in which the lines are run, where the document has them.

    Examples are `code: src` and `cd training`.
    """
    here = dirname(place_of(holder.path))
    if isinstance(holder, CommandDocument):
        here = join(here, holder.start_folder or "")
    script = _script_of(holder)
    commands = script.shell.commands if script is not None else ()
    targets = [
        command.words[1].value
        for command in commands
        if len(command.words) == 2 and command.words[0].value in _MOVES
    ]
    folders = [join(here, to) for to in targets if to and not to.startswith(("~", "-"))]
    return tuple(dict.fromkeys((*folders, here)))


def _is_missing(path: str, launch: Launch, written: Word) -> bool:
    """Return whether a file isn't in the folder where its launch line trains.

    The program's path says which folder that is. A file that the program names it may make itself.
    """
    program = launch.program.value if launch.program else None
    if not program or isabs(program) or isabs(path):
        return False
    trains = launch.makes_steps or (launch.call("deepspeed") is not None and not written.variables)
    program_file = program_of(launch)
    if not trains or not program_file or PurePath(path).name in strings_beside(program_file):
        return False
    base = program_file.parents[len(PurePath(program).parts) - 1]
    return (base / path).parent.is_dir() and not (base / path).exists()


def _script_of(holder: LaunchScript | CommandDocument) -> LaunchScript | None:
    return holder.script if isinstance(holder, CommandDocument) else holder


def _pattern(parts: tuple[str | None, ...]) -> re.Pattern[str] | None:
    """Return the pattern of a file's name of which some parts are unknown.

    Returns None where too little is known.
    """
    of_name: list[str | None] = []  # the parts behind the last slash
    for part in parts:
        _, slash, after = (part or "").rpartition("/")
        of_name = [after] if slash else [*of_name, part]
    if of_name and of_name[0] is not None:
        of_name[0] = of_name[0].rpartition("=")[2]
    known_text = "".join(part or "" for part in of_name)
    # Fewer letters fit too many files.
    if not known_text.endswith(_DATA) or len(PurePath(known_text).stem) < 3:
        return None
    return re.compile("".join("[^/]*" if part is None else re.escape(part) for part in of_name))


def consumer_of(submission: Submission) -> str | None:
    """Lightning, where a launch line sets its variable for a DeepSpeed config."""
    return "lightning" if any(map(configures_lightning, submission.launches)) else None
