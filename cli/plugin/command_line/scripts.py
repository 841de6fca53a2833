"""What a shell evaluates to complete `kubectl-mooring`; kubectl itself completes `kubectl mooring`."""

from collections.abc import Mapping

_BASH = r"""# Completion of kubectl-mooring for bash.
_kubectl_mooring() {
  local IFS=$'\n' found
  found=$(kubectl_complete-mooring "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null | sed '/^:[0-9]*$/d; s/\t.*//')
  COMPREPLY=($(compgen -W "$found" -- "${COMP_WORDS[COMP_CWORD]}"))
}
complete -o default -F _kubectl_mooring kubectl-mooring
"""
_ZSH = r"""#compdef kubectl-mooring
# Completion of kubectl-mooring for zsh.
_kubectl_mooring() {
  local -a found
  local text
  text=$(kubectl_complete-mooring "${(@)words[2,CURRENT]}" 2>/dev/null | sed '/^:[0-9]*$/d; s/:/\\:/g; s/\t/:/')
  found=(${(f)text})
  if (( $#found )); then _describe 'kubectl mooring' found; else _files; fi
}
compdef _kubectl_mooring kubectl-mooring
"""
_FISH = r"""# Completion of kubectl-mooring for fish.
function __kubectl_mooring
  kubectl_complete-mooring (commandline -opc)[2..-1] (commandline -ct) 2>/dev/null | string match -rv '^:[0-9]*$'
end
complete -c kubectl-mooring -a '(__kubectl_mooring)'
"""
SCRIPTS: Mapping[str, str] = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}
