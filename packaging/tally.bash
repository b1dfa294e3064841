# Completion of tally for bash.

# The word after which everything belongs to the profiled program, or nothing.
_tally_program_index() {
  local i
  for ((i = 1; i < COMP_CWORD; i++)); do
    [[ ${COMP_WORDS[i]} == -- ]] && { echo $((i + 1)); return; }
  done
}

# What --format may be for a command.
_tally_formats() {
  case $1/$2 in
    dump/cfg) echo "text dot" ;;
    dump/profile | explain/* | doctor/* | verify/*) echo "text json" ;;
    *) echo "text json csv" ;;
  esac
}

_tally() {
  local cur prev words cword
  _init_completion -n = || return
  local commands="profile recover report annotate explain check verify dump doctor"
  local program
  program=$(_tally_program_index)
  if [[ -n $program ]]; then
    _command_offset "$program"
    return
  fi
  case $cur in
    --format=*)
      COMPREPLY=($(compgen -W "$(_tally_formats "${words[1]}" "${words[2]-}")" -- "${cur#*=}"))
      return ;;
    --placement=feedback=*)
      cur=${cur#--placement=feedback=}
      _filedir tally
      return ;;
    --placement=*)
      COMPREPLY=($(compgen -W "edges blocks feedback= none" -- "${cur#*=}"))
      compopt -o nospace
      return ;;
    --no-opt=*)
      COMPREPLY=($(compgen -W "ahead tables recall weights renewal order defer shared joins notes hashes flags low32 paired unspilled index sealed through found packed sparse direct asks fronts near callers rest compact induction" -- "${cur#*=}"))
      return ;;
    --keep-counters=*)
      cur=${cur#--keep-counters=}
      _filedir
      return ;;
    --pid=*)
      COMPREPLY=($(compgen -W "$(cd /proc && echo [0-9]*)" -- "${cur#*=}"))
      return ;;
    --engine=*)
      COMPREPLY=($(compgen -W "trap translate" -- "${cur#*=}"))
      return ;;
    --profile=*)
      cur=${cur#*=}
      _filedir
      return ;;
    --profile-format=*)
      COMPREPLY=($(compgen -W "tally plain fdata callgrind gcov llvm-coverage llvm-samples
        perf-script" -- "${cur#*=}"))
      return ;;
    --program=*)
      cur=${cur#*=}
      _filedir
      return ;;
    --syntax=*)
      COMPREPLY=($(compgen -W "intel att" -- "${cur#*=}"))
      return ;;
  esac
  case $prev in
    -o | --output)
      _filedir
      return ;;
  esac
  if ((cword == 1)); then
    COMPREPLY=($(compgen -W "$commands --help --version" -- "$cur"))
    [[ $cur == -* ]] || COMPREPLY+=($(compgen -c -- "$cur"))
    return
  fi
  local options=
  case ${words[1]} in
    profile) options="-o --output= --placement= --pid= --duration= --keep-counters= --no-opt= --verbose --help --" ;;
    recover) options="-o --output= --help" ;;
    report) options="--format= --top= --help" ;;
    annotate) options="--function= --module= --syntax= --format= --help" ;;
    explain) options="--module= --format= --help" ;;
    dump)
      if ((cword == 2)); then
        COMPREPLY=($(compgen -W "instructions edges blocks profile cfg" -- "$cur"))
        return
      fi
      options="--format= --help"
      [[ ${words[2]} == cfg ]] && options+=" --function=" ;;
    verify)
      options="--profile= --profile-format= --engine= --budget= --made-by= --overlap-min= --format= --output="
      options+=" --run= --children= --top= --once --runs= --no-ahead --help --" ;;
    check) options="--format= --profile-format= --program= --run= --top= --help" ;;
    doctor) options="--format= --help" ;;
    *)
      _command_offset 1
      return ;;
  esac
  if [[ $cur == -* ]]; then
    COMPREPLY=($(compgen -W "$options" -- "$cur"))
    [[ ${COMPREPLY[0]-} == *= ]] && compopt -o nospace
    return
  fi
  case ${words[1]} in
    recover) _filedir ;;
    report | annotate | explain) _filedir tally ;;
    check) _filedir ;;
    dump) if [[ ${words[2]} == cfg ]]; then _filedir; else _filedir tally; fi ;;
    profile) COMPREPLY=($(compgen -c -- "$cur")) ;;
  esac
}
complete -F _tally tally
