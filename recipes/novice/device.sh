# Run on the lent GPU: three variants side by side; results to $OUT.
set -x
mkdir -p /tmp/site && for w in carry/wheels/*.whl; do python -m zipfile -e $w /tmp/site; done
export PYTHONPATH=$PWD:/tmp/site MONTY_BIN=$(find /tmp/site -name monty -type f | head -1)
chmod +x $MONTY_BIN; $MONTY_BIN --version
L="python -m longloop.cli.main"
export OMP_NUM_THREADS=4
$L models new runs/novice-start --env errands per_scenario=40 --vocabulary 2048 --hidden 192 --layers 4 --heads 6 --seed 0 2>/dev/null
for c in "$@"; do
  n=v-${c%%:*}
  timeout 530 $L train recipes/novice/novice.toml name=$n env.careless=${c%%:*} $(echo ${c#*:} | tr ',' ' ') > $OUT/$n.txt 2>&1 &
done
wait
for c in "$@"; do
  n=v-${c%%:*}; mkdir -p $OUT/$n; cp -r runs/$n/checkpoints runs/$n/metrics.jsonl runs/$n/config.toml runs/$n/run.json $OUT/$n/ ; rm -f $OUT/$n/checkpoints/*/optimiser.safetensors; tail -3 $OUT/$n.txt
done
