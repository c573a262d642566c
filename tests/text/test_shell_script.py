"""Shell scripts are read as bash reads them, as far as they can be known."""

from __future__ import annotations

import random
import subprocess
import time
from collections.abc import Iterator
from itertools import product

import pytest

from dsgen.findings import Location
from dsgen.text.shell import tokens
from dsgen.text.shell.reader import read_command_text, read_script
from dsgen.text.shell.records import ShellScript
from dsgen.text.text import Text
from tests.workers import HANGS_S

_PRELUDE = """\
EMPTY=
ONE=1
TWO=two
PATHLIKE=/data/my-run_1.bin
SPACES='a b  c'
OPTIONS="--lr 1e-4 --name $TWO"
LONG=" \\
    --num-layers 24 \\
    --hidden-size $((1024 * 2)) \\
    "
LIST=(--a 1 'b c' "$TWO" # with a comment
  --d="x y")
NONE=()
show() { printf '<%s>' "$@"; echo; }
"""
_WORDS = (
    "plain",
    "'single $ONE \"x\"'",
    '"double $ONE \\" \\$ONE \\\\ \'q\'"',
    "$ONE",
    "${ONE}",
    '"$EMPTY"',
    "$EMPTY",
    "$SPACES",
    '"$SPACES"',
    "x$SPACES",
    '${SPACES}y"z"',
    "$OPTIONS",
    "$LONG",
    '"${LIST[@]}"',
    "${LIST[@]}",
    '"${LIST[*]}"',
    '"pre${LIST[@]}post"',
    '"${NONE[@]}"',
    "${NONE[@]}",
    "${LIST[0]}",
    "${LIST[2]}",
    '"${LIST[@]:3}"',
    "${#LIST[@]}",
    "${#TWO}",
    "$LIST",
    "--x=$ONE",
    '--x="$SPACES"',
    "$((ONE + 2 * 3))",
    "$(( (7 - 2) / 2 % 2 ))",
    "$((2 ** 10))",
    "$((-7 / 2))",
    "a$[ONE + 2 * 3]b",
    '"$[ $ONE + 7 % 4 ]"',
    "$[${ONE}+1]",
    "${ONE:-9}",
    "${EMPTY:-9}",
    "${EMPTY-9}",
    "${NOT_SET_ANYWHERE:-d e}",
    '"${NOT_SET_ANYWHERE:-d e}"',
    "${NOT_SET_ANYWHERE_EITHER:=f}",
    "${ONE:+yes}",
    "${EMPTY:+yes}",
    "${PATHLIKE%.bin}",
    "${PATHLIKE#/data/}",
    "a\\ b",
    "\\$ONE",
    '$"localised"',
    "a'b'\"c\"$ONE",
    "a\\\nb",
    '"a\\\nb"',
    "--seed=$ONE$TWO",
    "1e-5",
    "a#b",
    "$",
    "a$",
    '"$"',
    "{}",
    "a=b",
    "''",
    "x''",
    '"\'"',
)


def _text(content: str) -> Text:
    return Text(path="launch.sh", content=content, lines=content.split("\n"))


def _read(content: str) -> ShellScript:
    return read_script(_text(content))


def _as_printed(script: ShellScript) -> Iterator[str | None]:
    """What each `show` prints by our reading; None where a word isn't known."""
    for command in script.commands:
        if command.words[0].value == "show" and not command.guarded:
            values = [word.value for word in command.words[1:]]
            yield None if None in values else "".join(f"<{value}>" for value in values) or "<>"


def _printed_by_bash(content: str) -> list[str]:
    answer = subprocess.run(
        ["bash", "--norc", "-c", content],
        capture_output=True,
        text=True,
        check=True,
        timeout=HANGS_S,
        env={"PATH": "/bin"},
    )
    return answer.stdout.replace("\n<", "\0<").removesuffix("\n").split("\0")


def test_words_are_what_bash_makes_of_them() -> None:
    """Every word of the table, and every pair of neighbours, comes out as bash's own."""
    lines = [f"show {word}" for word in _WORDS] + [
        f"show {a} {b}" for a, b in product(_WORDS[::3], _WORDS[::2])
    ]
    content = _PRELUDE + "\n".join(lines) + "\n"
    ours = list(_as_printed(_read(content)))
    assert None not in ours
    assert ours == _printed_by_bash(content)


def _statement(chance: random.Random, names: list[str]) -> str:
    name = chance.choice(names)
    words = " ".join(
        chance.choice(_WORDS + tuple(f"${n}" for n in names)) for _ in range(chance.randint(1, 3))
    )
    number = chance.randint(0, 10**6)
    value = chance.choice(
        (*_WORDS[:13], "$ONE", '"$SPACES x"', '"$OPTIONS --y 2"', f'"${name} --z 3"')
    )
    return chance.choice(
        (
            f"show {words}",
            f"show {words}; show {words}",
            f"{name}={value}",
            f"{name}+={value}",
            f"export {name}={value}",
            f"L{name}=({words})",
            f"L{name}+=({words})",
            f'show "${{L{name}[@]}}"',
            f"if true; then\n  {name}={value}\nfi\nshow ${name}",
            f"if [ $ONE = 1 ]; then\n  {name}=a\nelse\n  {name}={value}\nfi\nshow ${name}",
            f'for i in 1 2; do\n  {name}="${name}x"\ndone\nshow ${name}',
            f"case $TWO in\n  two) {name}=c ;;\n  *) {name}=d ;;\nesac\nshow ${name}",
            f"[ -z x ] && {name}=z\nshow ${name}",
            f"({name}=sub; L{name}=(s))\nshow ${name}",
            f"true && show {words} | cat",
            f"cat > /dev/null <<EOF\n${name} 'it is' \"\nEOF",
            f"{name}=$(cat <<-'E-D' | tr a b\n\tit's 1) \"\n\tE-D\n)",
            f"{name}=$(cat <<'E D' <<1; echo $((1<<N))\nit's (\nE D\nit's 2) \"\n1\n)",
            f"f() {{\n  {name}=in_function\n}}\nf\nshow ${name}",
            f"g{number}() {{\n  local W=$1\n  show $W $# ${name}\n  {name}=$2\n}}\n"
            f"g{number} a {words}\nshow ${name}",
            f'[ $ONE = 1 ] && [ -n "${name}" ] || {{ {name}=y; }}\nshow ${name}',
            f"unset {name}\nshow ${name}",
            f"{name}=prefix true\nshow ${name}",
            f"eval show {name}_ $ONE",
            f"((ONE_ = 3)); {name}=$((2 + 3))\nshow ${name}",
        )
    )


def _random_script(seed: int) -> str:
    chance = random.Random(seed)
    names = ["V1", "V2", "V3"]
    return (
        _PRELUDE
        + "V1=1\nV2=\nV3='x y'\n"
        + "\n".join(_statement(chance, names) for _ in range(25))
        + "\n"
    )


@pytest.mark.parametrize("seed", range(60))
def test_known_values_are_those_of_bash(seed: int) -> None:
    """In random scripts every word that we call known is the one that bash passes on."""
    content = _random_script(seed)
    ours = list(_as_printed(_read(content)))
    theirs = _printed_by_bash(content)
    assert len(ours) == len(theirs), content
    wrong = [
        (mine, real) for mine, real in zip(ours, theirs, strict=True) if mine not in (None, real)
    ]
    assert not wrong, content


def test_most_values_of_random_scripts_are_known() -> None:
    """What the reader calls known is not little: two of five commands, though names are unset and
    branched upon.
    """
    known = total = 0
    for seed in range(60):
        ours = list(_as_printed(_read(_random_script(seed))))
        known += sum(mine is not None for mine in ours)
        total += len(ours)
    assert known > total * 2 / 5


def test_a_placeholder_is_a_word_that_is_not_known() -> None:
    """`<path to data>` is one unknown word wherever it is; redirections, with blanks or without,
    are none.
    """
    content = """A="<two words>"
show <path to> --p=<a b>/c $A x
eval "show --q $A <d e>,f"
show y <in >out
show z <in>out
show v <in 2> err
"""
    words = [[word.value for word in command.words[1:]] for command in _read(content).commands]
    assert words[0] == [None, None, None, "x"]
    assert words[2] == ["--q", None, None]
    assert words[3:] == [["y"], ["z"], ["v"]]


def test_a_words_raw_text_stands_at_its_offset() -> None:
    """Every word, also of an array or a string defined elsewhere, is found in the text where it
    says.
    """
    content = (
        _PRELUDE
        + "\n".join(f"show {word}" for word in _WORDS)
        + "\nbash -c \"show \\$ONE $OPTIONS\" x 'y z'\n"
    )
    script = _read(content)
    words = [word for command in script.commands for word in command.words]
    words += [word for assignment in script.assignments for word in assignment.words or ()]
    assert len(words) > 100
    assert all(content[word.offset : word.offset + len(word.raw)] == word.raw for word in words)


def test_words_of_a_split_string_are_placed_at_its_definition() -> None:
    """Options in the classic multi-line string are located on their own lines."""
    script = _read(
        'LAYERS=24\nARGS=" \\\n  --num-layers $LAYERS \\\n  --bf16 \\\n"\npython train.py $ARGS\n'
    )
    words = script.commands[-1].words
    assert [(word.value, script.locate(word).line) for word in words[2:]] == [
        ("--num-layers", 3),
        ("24", 3),
        ("--bf16", 4),
    ]


def test_directives_after_a_command_are_ignored() -> None:
    """`#SBATCH` lines count up to the first command; comments and blank lines may stand before."""
    script = _read(
        "#!/bin/bash\n# x\n\n#SBATCH -N 2 # two\n#SBATCH --time='1:00'\nset -e\n#SBATCH --mem=0\n"
    )
    assert [(tuple(w.value for w in d.words), d.ignored) for d in script.directives] == [
        (("-N", "2"), False),
        (("--time=1:00",), False),
        (("--mem=0",), True),
    ]


def test_a_here_document_has_its_target_and_content() -> None:
    """A file written by `cat` is known with its name, its place, and variables filled in where
    known.
    """
    script = _read(
        'F=ds.json\nB=4\ncat <<EOT > $F\n{"b": $B, "j": "$SLURM_JOB_ID"}\nEOT\ntee '
        "x.txt <<'E'\n$B\nE\n"
    )
    first, second = script.heredocs
    assert (first.target and first.target.value, first.content, first.complete, first.literal) == (
        "ds.json",
        '{"b": 4, "j": "$SLURM_JOB_ID"}\n',
        False,
        False,
    )
    assert (second.target and second.target.value, second.content, second.complete) == (
        "x.txt",
        "$B\n",
        True,
    )
    assert script.locate(second.offset).line == 7


@pytest.mark.parametrize(
    ("text", "single_quoted", "value"),
    [
        ("'echo $A $B'", True, ["echo", "1", None]),
        ('"echo $A \\$A $C"', False, ["echo", "1", "1", "2"]),
    ],
)
def test_the_text_of_bash_c_is_read(
    text: str, single_quoted: bool, value: list[str | None]
) -> None:
    """In single quotes only exported variables are known inside; in double quotes the outer shell
    fills in its own.
    """
    script = _read(f"export A=1\nB=x\nC=2\nsrun bash -c {text}\n")
    outer, inner = script.commands[-2:]
    assert (inner.inside, inner.single_quoted, inner.shell) == (outer.index, single_quoted, text)
    assert [word.value for word in inner.words] == value


@pytest.mark.parametrize(
    "script",
    [
        'CMD="show a"\nCMD="$CMD --x $ONE"\nCMD+=" -y"\neval $CMD; bash -c "$CMD"',
        "CMD=$(cat <<EOF\nshow --x $ONE \\\\\n  --y '$TWO'\nshow b\nEOF\n)\nbash -c \"$CMD\"",
        'A="--x \n  --y $ONE"\nshow $(echo $A) "$(echo "$A" | tr \'\\n\' \' \' | xargs)"',
        "show \"$(echo 'a   b' | sed 's/  \\+/ /g')\" `echo b` $(printf '%s ' \"${LIST[@]}\")",
        "read -r -d '' TEXT <<'EOF' || true\nshow $1\nshow c\nEOF\nbash -c \"$TEXT\" name b",
        'IFS=, read -r A B <<< "$ONE,b"\nshow $A $B\nread -ra C <<< "$SPACES"\nshow "${C[@]}"',
        "cat > run.sh <<EOF\nshow $ONE \\$1\nEOF\necho 'show $TWO c' >> run.sh\nbash ./run.sh b",
        "tee run.sh <<EOF > /dev/null\nA=$TWO\nEOF\n. ./run.sh\nshow $A",
        "bash <<EOF\nshow $ONE\nEOF\nbash -s <<'EOF'\nshow $TWO a\nEOF",
        'CMD="show a"\necho "$CMD" b | bash\nbash <<< "$CMD"',
        "cat <<-EOF | bash\n\tshow $ONE\n\tEOF",
        'run() { "$@"; }\nrun show a $ONE\ntext() { eval "$@"; }\ntext "show b" c',
    ],
)
def test_a_command_built_as_a_text_is_read(script: str) -> None:
    """What a script puts into a variable, a file or another shell, and runs, is read as bash runs
    it; each word is found where it stands.
    """
    export = "export -f show\nexport TWO\ncd $(mktemp -d)\n"
    read = _read(_PRELUDE + export + script + "\n")
    said = list(_as_printed(read))
    assert said == _printed_by_bash(_PRELUDE + export + script + "\n")
    for command in read.commands:
        for word in command.words:
            assert read.text.content.startswith(word.raw, word.offset)


def test_words_that_a_loop_adds_leave_those_before_them() -> None:
    """Behind a loop that only adds words a list or a text begins as before it; one that a loop sets
    anew is unknown.
    """
    script = _read(
        'A=(a b)\nB="a b"\nC="a"\nD=(a)\n'
        'for x in 1 2; do\nA+=(--d $x)\nB="$B --d $x"\nC="$C$x"\nD=($x)\n'
        'done\nshow "${A[@]}" $B $C "${D[@]}"'
    )
    values = [word.value for word in script.commands[-1].words]
    assert values == ["show", "a", "b", None, "a", "b", None, None, None]


def test_a_job_of_a_here_document_has_its_directives() -> None:
    """The script that another one hands to sbatch has directives and commands of its own, and a
    second one is another job.
    """
    script = _read(
        "N=2\nfor n in 1; do\nsbatch <<EOF\n#SBATCH --nodes=$N --time=$T\nsrun show $N\nEOF\ndone\n"
        "sbatch <<'EOF'\n#SBATCH --nodes=4\nsrun show\nEOF"
    )
    words = [[word.value for word in one.words] for one in script.directives]
    assert words == [["--nodes=2", None]]
    assert [one.words[0].value for one in script.commands] == ["sbatch", "srun", "sbatch"]


def test_a_variable_that_a_branch_sets_otherwise_is_unknown() -> None:
    """After an `if` a value is known only when all ways lead to it; what all ways share is kept."""
    script = _read(
        'A=1\nB=1\nARGS="--x 1"\nif [ "$1" ]; then A=1; B=2; ARGS="$ARGS --y"; fi\nARGS="$ARGS '
        '--z"\necho $A $B $ARGS\n'
    )
    assert [word.value for word in script.commands[-1].words] == [
        "echo",
        "1",
        None,
        "--x",
        "1",
        None,
        "--z",
    ]
    assert (script.value_of("A"), script.value_of("B"), script.value_of("NOBODY")) == (
        "1",
        None,
        None,
    )


@pytest.mark.parametrize(
    ("condition", "value"),
    [
        ('[ "$MODE" = "on" ]', "yes"),
        ('[[ "${MODE}" != on ]]', "no"),
        ("[ $SIZE -gt 1 ]", "yes"),
        ("[ $SIZE -lt 1 ]", "no"),
        ('[ "$MODE" = "on" ] && [ -d data ]', None),
        ('! [ "$MODE" = "on" ]', "no"),
        ('[ "$MODE" = "on" ] && [ -n "$SIZE" ]', "yes"),
        ('[ -d data ] || [ "$MODE" = "on" ]', "yes"),
        ('[ -z "$MODE" ] && [ -d data ]', "no"),
        ('{ [ "$SIZE" = 2 ] || [[ $MODE == o* ]]; } && ((SIZE > 3))', "yes"),
        ('[ "$1" = "on" ]', None),
        ('[ "$MODE" -gt 1 ]', None),
    ],
)
def test_a_condition_on_known_values_decides_the_branch(condition: str, value: str | None) -> None:
    """Of an `if` whose condition compares what the script has set, the branch that runs gives a
    variable its value.
    """
    script = _read(f"MODE=on\nSIZE=4\nif {condition}; then A=yes; else A=no; fi\necho $A\n")
    assert script.commands[-1].words[1].value == value


_ATOMS = (
    '[ -n "$ONE" ]',
    '[ -z "$EMPTY" ]',
    "[ -n $EMPTY ]",
    "[ $EMPTY ]",
    "[ ]",
    "[ $ONE = 1 ]",
    '[ "$TWO" != two ]',
    '[ "$TWO" == "t*" ]',
    "[ $ONE -eq 1 -a $TWO = no ]",
    "[ $ONE -gt 1 -o ! -z $TWO ]",
    "[ ! $ONE -lt -1 ]",
    "[ ! -z $ONE -a $TWO = no ]",
    '[ ! -n "$EMPTY" -o $ONE = 2 ]',
    "test ! $ONE = 1 -o $TWO = two",
    "[ ! $ONE = 2 -a ! $TWO = no ]",
    "[ x$EMPTY = x ]",
    "test $ONE -le 01",
    "[[ $TWO == t* ]]",
    '[[ $TWO == "t*" ]]',
    "[[ $TWO != *[a-o] && -n $ONE ]]",
    "[[ $SPACES == 'a b'* || -z $ONE ]]",
    "[[ ! ( $ONE -eq 1 && -z $TWO ) ]]",
    "[[ ONE+1 -eq 2 ]]",
    "[[ $TWO =~ ^(t|x)w && $ONE == 1 ]]",
    "[[ -v TWO ]]",
    "[[ $TWO < three ]]",
    "((ONE + 1 > 1 && ONE != 2))",
    "((ONE - 1))",
    "(( !(ONE) || 2 * ONE >= 2 ))",
    "! true",
    "$FALSE",
    "false",
    ":",
)


def test_conditions_hold_where_bash_says_so() -> None:
    """Of pairs of conditions, joined by `&&` and `||`, no result that we know is another than
    bash's, and most are known.
    """
    chance = random.Random(0)
    lines = [*_ATOMS]
    for _ in range(200):
        one, other, third = (chance.choice(_ATOMS) for _ in range(3))
        lines.append(f"{one} {chance.choice(('&&', '||'))} {other} || {{ {third} && {one}; }}")
    content = f"{_PRELUDE}FALSE=false\n" + "".join(
        f"if {line}; then A=yes; else A=no; fi\nshow $A\n{line} && A=sure || A=none\nshow $A\n"
        f"A=all\n{line} || {{ A=group; B=$A; }}\nshow $A\n"
        for line in lines
    )
    ours, theirs = list(_as_printed(_read(content))), _printed_by_bash(content)
    assert len(ours) == len(theirs)
    wrong = [
        (lines[index // 3], mine, real)
        for index, (mine, real) in enumerate(zip(ours, theirs, strict=True))
        if mine not in (None, real)
    ]
    assert not wrong
    assert ours.count(None) < len(ours) / 10


@pytest.mark.parametrize(
    ("setting", "branch"),
    [("MODEL=7b", "4096"), ("MODEL=${MODEL:-13b}", "5120"), ("MODEL=70b", "none"), ("", None)],
)
def test_the_branch_of_a_case_is_the_one_that_matches(setting: str, branch: str | None) -> None:
    """Of a `case` on a known word only the branch runs whose pattern matches it first, also where
    patterns stand behind `in` or have a bracket before them.
    """
    lines = ("7b|8b) N=4096 ;;", "13*) N=5120 ;;", "1*) N=1 ;;", "*) N=none ;;")
    forms = ("\n ".join(("", *lines)), " ".join(("", *lines)), " (".join(("", *lines)))
    for form in forms:
        script = _read(f"{setting}\ncase $MODEL in{form}\nesac\nshow $N\n")
        assert script.commands[-1].words[1].value == branch, form


@pytest.mark.parametrize(
    ("question", "value"),
    [
        ("is_large", None),
        ("mountpoint -q /data", None),
        ("{ grep -q a b; }", None),
        ("(grep -q a b)", None),
        ("mkdir -p out", "16"),
        ("(cd out)", "16"),
    ],
)
def test_what_asks_before_an_assignment_decides_nothing(question: str, value: str | None) -> None:
    """A function, a test or a group that ends with one may fail, so that what `&&` sets behind it
    isn't known; a command that does something is expected to succeed.
    """
    script = _read(f"N=8\nis_large() {{ return 1; }}\n{question} && N=16\nshow $N\n")
    shown = [one for one in script.commands if one.words[0].value == "show"]
    assert shown[-1].words[1].value == value


def test_a_command_that_no_value_can_reach_is_not_read() -> None:
    """What stands behind `if false` never runs; behind a variable it may, with another value."""
    script = _read(
        "if false; then\nshow 1\nelif true; then\nshow 2\nelse\nshow 3\nfi\n"
        'MODE=a\nif [ "$MODE" = b ]; then\nshow 4\nfi\n[ "$MODE" = a ] || show $MODE\n'
    )
    shown = [one.words[1].value for one in script.commands if one.words[0].value == "show"]
    assert shown == ["2", "4", None]


def test_a_function_is_read_where_it_is_called() -> None:
    """A function runs with the arguments and values of each call, and leaves what it sets but its
    own variables; one that nothing calls decides nothing.
    """
    script = _read(
        "N=1\nrun() {\n  local SIZE=$1 B=${2:-1}\n  if [ $SIZE = 7b ]; then A=yes; else A=no; fi\n"
        '  show $N $SIZE $B $# "${@:2}"\n  C=$A\n}\n'
        "uncalled() { if [ $N = 8 ]; then D=1; else D=2; fi; show $D; }\n"
        "again() { if [ -d x ]; then C=early; return; fi; C=late; again; }\n"
        "N=8 SIZE=mine\nrun 7b 2\nshow $C $SIZE\nrun 13b\nshow $C\nagain\nshow $C\n"
        "run 7b | tee log\nshow $C\n"
    )
    shown = [
        [word.value for word in one.words[1:]]
        for one in script.commands
        if one.words[0].value == "show"
    ]
    assert shown == [
        ["8", "7b", "2", "2", "2"],
        ["yes", "mine"],
        ["8", "13b", "1", "1"],
        ["no"],
        [None],
        ["8", "7b", "1", "1"],
        [None],
        [None],
    ]


def test_an_alternative_is_there_or_not() -> None:
    """`${NAME:+--option value}` of an unknown variable may give these words, and no others."""
    script = _read('train.py ${CACHE:+--data-cache-path "$CACHE"} --lr 1\n')
    assert script.commands[0].words[1].perhaps == ("--data-cache-path", None)


@pytest.mark.parametrize(
    ("branches", "either"),
    [
        ("a) N=8 ;; b) N=16 ;;", ("8", "16")),
        ("a) N=8 ;; b) N=8 ;;", ("8",)),
        ("a) N=8 ;; b) N=$2 ;;", ()),
        ("a) N=8 ;; b) N='1 2' ;;", ()),
        ("a) N=8 ;; b) N=16 ;; *) exit 1 ;;", ("8", "16")),
    ],
)
def test_a_value_that_depends_on_a_branch_is_one_of_its_texts(
    branches: str, either: tuple[str, ...]
) -> None:
    """A word of which branches decide has the texts that they may give it, and no value."""
    script = _read(f"case $MODE in {branches} esac\ntrain.py --gpus=$N\n")
    word = script.commands[-1].words[1]
    assert word.value is None
    assert word.either == tuple(f"--gpus={text}" for text in either)


def test_a_branch_that_exits_leaves_no_value() -> None:
    """What is behind a block runs with the values of the branches that don't end the script."""
    script = _read("if [ -d $1 ]; then N=8; else N=1; exit 1; fi\necho $N\n")
    assert script.commands[-1].words[1].value == "8"


def test_an_element_is_replaced_in_its_array() -> None:
    """`NAME[1]=value` changes one word of an array that is known, and makes others unknown."""
    script = _read("A=(--a 1 --b)\nA[1]=2\nB[1]=2\necho ${A[@]} ${B[@]}\n")
    assert [word.value for word in script.commands[-1].words[1:]] == ["--a", "2", "--b", None]
    assert script.commands[-1].words[-1].raw == "${B[@]}"


def test_what_the_scheduler_sets_is_unknown() -> None:
    """Variables of Slurm, positional parameters without a default and command substitutions have no
    known value.
    """
    script = _read(
        'echo $SLURM_NNODES ${SLURM_NNODES:-4} $1 ${2:-x} $(nproc) `pwd`/x "$@" $UNSET\n'
    )
    words = script.commands[0].words[1:]
    assert [word.value for word in words] == [*[None] * 3, "x", *[None] * 4]
    assert words[0].variables == ("SLURM_NNODES",)
    assert words[5].parts == (None, "/x")


def test_a_command_text_has_the_places_of_its_document() -> None:
    """A command given in another document is located there, and `${{inputs.x}}` is unknown."""
    script = read_command_text(
        "python train.py --data ${{inputs.data}} --lr 1",
        lambda at: Location(path="job.yml", line=7, column=at + 1),
    )
    words = script.commands[0].words
    assert [word.value for word in words] == ["python", "train.py", "--data", None, "--lr", "1"]
    assert script.locate(words[-1]) == Location(path="job.yml", line=7, column=46)


_HOSTILE = {
    "doubling": "A=aaaaaaaaaa\n" + "A=$A$A\n" * 1000 + "torchrun $A\n" * 10,
    "doubling array": "A=(a b)\n" + 'A=("${A[@]}" "${A[@]}")\n' * 200,
    "nested text": 'CMD="' + "x " * 2000 + '"\n' + 'eval "$CMD"\nbash -c "$CMD"\n' * 300,
    "one long value": 'A="' + "x " * 15000 + '"\n' + "echo $A\n" * 5000,
    "open blocks": "if a; then\nwhile b; do X=1\n" * 5000,
    "closed blocks": "(\n" * 5000 + "fi\n" * 5000,
    "open brackets": "$(" * 20000,
    "nested defaults": "echo " + "${a:-" * 5000 + "}" * 5000,
    "nested quotes": "echo " + '"$(' * 5000 + ')"' * 5000,
    "quotes": "'" * 9999 + '"' * 9999 + "`" * 9999,
    "braces": "echo " + "{a" * 20000 + "," * 20000,
    "globs": "echo " + "[a" * 20000,
    "arithmetic": "A=$(( " + "(" * 5000 + "1" + ")" * 5000 + " ))\n",
    "big power": "A=$((9 ** 9 ** 9 ** 9))\nB=$((1 << 99999999))\n",
    "here-documents": "cat <<A <<B\n" * 5000,
    "here-documents within": "cat $(cat <<A <<B\n" * 50_000 + "A\nB\n" * 10_000,
    "an open case": "(case a) b (c)\n",
    "cases": "case $x in\n" + "".join(f"a{i}) V{i}=1;;\n" for i in range(5000)) + "esac\n",
}


@pytest.mark.parametrize("name", _HOSTILE)
def test_hostile_scripts_end_soon(name: str) -> None:
    """No script makes the reader fail, recur deeply or take long."""
    start = time.process_time()
    script = _read(_HOSTILE[name])
    assert time.process_time() - start < 20
    assert script.text.content == _HOSTILE[name]


@pytest.mark.parametrize("seed", range(200))
def test_garbage_is_read(seed: int) -> None:
    """Random characters of shell syntax are read without an exception, and words stand where they
    say.
    """
    chance = random.Random(seed)
    pieces = [
        *(
            "if",
            "then",
            "fi",
            "case",
            "esac",
            "in",
            "do",
            "done",
            "for",
            "{",
            "}",
            "bash -c ",
            "eval ",
            "A=",
            "A+=(",
        )
    ]
    pieces += [f"\n{asked} [ $A = b ]; then\n" for asked in ("if", "elif")]
    alphabet = [
        *"ab$(){}[]\"'`\\|&;<>#=*~! \n\t",
        *pieces,
        "${A[@]}",
        "$A",
        "<<E\n",
        "$((",
        "[[ ",
        "#SBATCH",
    ]
    content = "".join(chance.choice(alphabet) for _ in range(300))
    script = _read(content)
    words = [word for command in script.commands for word in command.words]
    assert all(content[word.offset : word.offset + len(word.raw)] == word.raw for word in words)
    for thing in (*words, *script.assignments, *script.directives, *script.heredocs):
        assert script.locate(thing).line is not None


def test_long_scripts_are_read_quickly() -> None:
    """50,000 lines take about a second."""
    line = 'torchrun --nproc_per_node $N train.py --lr 1e-4 # "x"\n'
    start = time.process_time()
    script = _read("N=8\n" + line * 25_000 + "X=1\n" * 25_000)
    # a loaded machine of the slowest kind; a second on an idle one
    assert time.process_time() - start < 20
    assert len(script.commands) == 25_000


def test_many_blocks_in_each_other_take_no_long_time() -> None:
    """What is set in thousands of nested blocks is unknown behind them, and reading it takes a few
    seconds at most.
    """
    content = "\n".join(
        [
            "A=1",
            *(f"if test -e {index}; then\nA={index}\nB_{index}=1" for index in range(4_000)),
            *["fi"] * 4_000,
            "echo $A",
        ]
    )
    began = time.process_time()
    script = read_script(Text(path="nested.sh", content=content, lines=content.splitlines()))
    assert time.process_time() - began < 15
    assert script.commands[-1].words[1].value is None
    assert not script.commands[-1].guarded


@pytest.mark.parametrize(
    ("line", "read"),
    [
        ("exit 0", False),
        ("true && false\nexit", False),
        ("sleep 1 & exit 0", False),
        ("true &&\nfalse\nexit", False),
        ('[ -z "$1" ] && echo usage && exit 1', True),
        ('[ -z "$1" ] &&\n  exit 1', True),
        ("(($# < 1)) && echo usage && exit 1", True),
        ("python -c 'import deepspeed' && exit 0", True),
        ("yes | exit 0", True),
        ("exit 0 | cat", True),
        ("exit 0 &", True),
        ("true || exit 0", True),
    ],
)
def test_a_script_ends_at_an_exit_that_always_runs(line: str, read: bool) -> None:
    """What follows `exit` is read unless that is a command of its own, and no part of a list."""
    assert (
        "torchrun"
        in [command.words[0].value for command in _read(f"{line}\ntorchrun a.py\n").commands]
    ) is read


@pytest.mark.parametrize(
    ("before", "within", "value"),
    [
        ("", "mkdir out", "all"),
        ("find() { GPUS=8; }", "find", "8"),
        ("function find {\nexport GPUS=$(find)\n}", "find", None),
        ("", ". ./gpus.sh", None),
        ("", "command source gpus.sh", None),
        ("", 'eval "$(cat x)"', None),
        ("", "later", None),
        (". ./functions.sh", "find", None),
        ("", "if true; then GPUS=8; fi", "8"),
        ("", 'if [ "$1" ]; then GPUS=8; fi', None),
    ],
)
def test_the_value_of_a_condition_lasts_until_other_code_runs(
    before: str, within: str, value: str | None
) -> None:
    """What a branch's condition says of a variable is unknown behind a function, `source` and
    `eval`.
    """
    script = _read(
        f'{before}\nif [ "$GPUS" = all ]; then\n{within}\nshow $GPUS\nfi\nlater() {{ GPUS=8; }}\n'
    )
    assert [c.words[1].value for c in script.commands if c.words[0].value == "show"] == [value]


def test_a_function_changes_what_it_sets() -> None:
    """A variable is unknown behind a call of the function that sets it, and others keep their
    values.
    """
    script = _read(
        "count() { GPUS=$(nvidia-smi -L | wc -l); }\nGPUS=all NODES=2\ncount\nshow $GPUS $NODES\n"
    )
    assert [word.value for word in script.commands[-1].words] == ["show", None, "2"]


def test_a_value_that_branches_refute_is_noted_once() -> None:
    """Reading n branches, each for the value that another variable has, notes a number of changes
    linear in n.
    """
    names = [f"M{index}" for index in range(500)]
    branches = "".join(f'elif [ "${name}" = q ]; then\nX=${name}\n' for name in names)
    script = _read(
        "".join(f"{name}=q\n" for name in names)
        + f"if [ -d $1 ]; then :\n{branches}else\nshow $M0\nfi\n"
    )
    assert sum(map(len, script.history.values())) < 20 * len(names)
    assert script.commands[-1].words[1].value is None
    assert script.value_of("M0") == "q"


@pytest.mark.parametrize(
    "text",
    [
        "U=$(cat <<EOF; echo $((1<<N))\nit's (here\nEOF\n)",
        "U=$(echo $((1<<N))\necho N)\nN=1\nN",
        "((X = 1 << N)); echo '\nN\n'",
        "U=$(cat <<'END TEXT'\nit's (here\nEND TEXT\n)",
        'U="$(cat <<!\nit\'s (here\n!\n)"',
        "U=$(cat <<1\nit's (here\n1\n)",
        'U=$(cat <<E"O"F\nit\'s (here\nEOF\n)',
        "U=$(cat <<_E@F <<-2\nit's (here\n_E@F\n\tit's\n\t2\n)",
        "U=$( ( (cat <<EOF)\nit's (here\nEOF\n) )",
    ],
)
def test_here_documents_of_any_delimiter_end_where_bash_ends_them(text: str) -> None:
    """A here-document within a substitution has any word for its delimiter, and a shift in
    arithmetic begins none.
    """
    subprocess.run(["bash", "-n"], input=f"{text}\n", text=True, check=True)
    script = _read(f"{text}\nshow 1\n")
    assert script.unterminated is None
    assert [word.value for word in script.commands[-1].words] == ["show", "1"]


def test_the_ends_of_here_documents_are_found_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A line with n here-documents within a substitution looks for the ends of those alone that
    have one.
    """
    searched, find = list[str](), tokens._closing_line
    monkeypatch.setattr(
        tokens, "_closing_line", lambda *given: searched.append(given[2]) or find(*given)
    )
    _read("U=$(" + "cat <<E " * 1000 + "\nE\n)\n")
    assert len(searched) < 20
