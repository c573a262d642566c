deepspeed --num_gpus 8 run_clm.py \
    --model_name_or_path meta-llama/Llama-2-7b \
    --deepspeed ds_auto.json \
    --per_device_train_batch_size 2 --gradient_accumulation_steps 4 \
    --learning_rate 2e-5 --num_train_epochs 3 --bf16 True --warmup_ratio 0.03 \
    --gradient_checkpointing True --report_to none \
    --output_dir out --save_steps 200 $EXTRA
