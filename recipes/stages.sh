# For recipes that train a model in stages and measure each: what was done is not done again, so that a recipe can be
# stopped at any moment and run once more. `name` says how its folders in runs/ begin.
longloop=${LONGLOOP:-longloop}

train() { # RUN CONFIG SETTINGS...
    if [ -e "runs/$1/run.json" ]; then
        $longloop train --resume "runs/$1" "${@:3}"
    else
        $longloop train "$2" name="$1" "${@:3}"
    fi
}
measure() { # RESULT TARGET SETTINGS...
    local file=runs/$name-results/$1.json attempts=runs/$name-attempts/$1
    [ -e "$file" ] && return
    mkdir -p "runs/$name-results"
    rm -rf "$attempts" # of a measurement that was stopped
    $longloop eval "$2" --json --out "$attempts" --split unseen_worlds --split dev --split validation --split test_normal --split test_challenge \
        env.isolation=process eval.tasks=0 "${@:3}" > "$file.part"
    mv "$file.part" "$file"
}
